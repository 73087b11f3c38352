import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import net.spy.memcached.MemcachedClient;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * YCSB's memcached binding, which is not on Maven Central, with the same client, spymemcached, and
 * its text protocol. As there, an item is a record with all its fields, each thread has a client of
 * its own, an update replaces the item, and scans are not implemented.
 */
public class MemcachedBinding extends DB {
  private MemcachedClient client;

  @Override
  public void init() throws DBException {
    String[] server = getProperties().getProperty("memcached.host").split(":");
    try {
      client = new MemcachedClient(new InetSocketAddress(server[0], Integer.parseInt(server[1])));
    } catch (IOException e) {
      throw new DBException(e);
    }
  }

  @Override
  public void cleanup() {
    client.shutdown();
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    Object item = client.get(table + "-" + key);
    if (item == null) {
      return Status.NOT_FOUND;
    }
    try {
      DataInputStream in = new DataInputStream(new ByteArrayInputStream((byte[]) item));
      for (int left = in.readInt(); left > 0; left--) {
        String field = in.readUTF();
        byte[] value = new byte[in.readInt()];
        in.readFully(value);
        if (fields == null || fields.contains(field)) {
          result.put(field, new ByteArrayByteIterator(value));
        }
      }
      return Status.OK;
    } catch (IOException e) {
      return Status.ERROR;
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    return store(client.replace(table + "-" + key, 0, packed(values)));
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    return store(client.set(table + "-" + key, 0, packed(values)));
  }

  @Override
  public Status delete(String table, String key) {
    return store(client.delete(table + "-" + key));
  }

  @Override
  public Status scan(String table, String start, int count, Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    return Status.NOT_IMPLEMENTED;
  }

  private static Status store(java.util.concurrent.Future<Boolean> done) {
    try {
      return done.get() ? Status.OK : Status.ERROR;
    } catch (Exception e) {
      return Status.ERROR;
    }
  }

  private static byte[] packed(Map<String, ByteIterator> values) {
    try {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      DataOutputStream out = new DataOutputStream(bytes);
      out.writeInt(values.size());
      for (Map.Entry<String, ByteIterator> field : values.entrySet()) {
        byte[] value = field.getValue().toArray();
        out.writeUTF(field.getKey());
        out.writeInt(value.length);
        out.write(value);
      }
      return bytes.toByteArray();
    } catch (IOException e) {
      throw new IllegalStateException("written to memory", e);
    }
  }
}
