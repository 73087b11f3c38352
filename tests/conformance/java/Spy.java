// What spymemcached asks of a memcached server by the binary protocol, asked of the one at HOST PORT, and with a USER and a PASSWORD
// logged in by SASL.

import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;

import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;

public class Spy {
    private static boolean failed = false;

    private static void check(String what, Object got, Object expected) {
        boolean right = Objects.deepEquals(got, expected);
        failed |= !right;
        System.out.println(right ? "ok - " + what : "not ok - " + what + ": expected " + expected + ", got " + got);
    }

    private static void storage(MemcachedClient client) throws Exception {
        check("set", client.set("a", 0, "1").get(), true);
        check("get", client.get("a"), "1");
        check("get of nothing", client.get("none"), null);
        check("add over something", client.add("a", 0, "2").get(), false);
        check("add", client.add("b", 0, "2").get(), true);
        check("replace", client.replace("b", 0, "3").get(), true);
        check("replace of nothing", client.replace("none", 0, "3").get(), false);
        check("append", client.append("b", "+").get(), true);
        check("prepend", client.prepend("b", "-").get(), true);
        check("get of both", client.get("b"), "-3+");
        check("delete", client.delete("b").get(), true);
        check("delete of nothing", client.delete("b").get(), false);
        check("touch", client.touch("a", 100).get(), true);
        check("get and touch", client.getAndTouch("a", 100).getValue(), "1");
    }

    private static void many(MemcachedClient client) throws Exception {
        Map<String, Object> values = new HashMap<>();
        for (int number = 0; number < 2000; number++) {
            values.put("many-" + number, number);
            client.set("many-" + number, 0, number);
        }
        client.set("last", 0, 1).get();
        values.put("none", null);
        Map<String, Object> found = client.getBulk(values.keySet());
        values.remove("none");
        check("getBulk", found, values);
    }

    private static void numbers(MemcachedClient client) throws Exception {
        check("incr creates", client.incr("n", 2, 5), 5L);
        check("incr", client.incr("n", 2), 7L);
        check("decr", client.decr("n", 100), 0L);
        check("incr of nothing", client.incr("nothing", 1), -1L);
    }

    private static void cas(MemcachedClient client) throws Exception {
        client.set("c", 0, "1").get();
        CASValue<Object> value = client.gets("c");
        check("cas", client.cas("c", value.getCas(), "2"), CASResponse.OK);
        check("cas of what was changed", client.cas("c", value.getCas(), "3"), CASResponse.EXISTS);
        check("cas of nothing", client.cas("none", value.getCas(), "3"), CASResponse.NOT_FOUND);
    }

    private static void server(MemcachedClient client) throws Exception {
        Map<String, String> stats = client.getStats().values().iterator().next();
        check("stats", Integer.parseInt(stats.get("curr_items")) > 0, true);
        check("version", client.getVersions().values().iterator().next().startsWith("1.6"), true);
        check("flush", client.flush().get(), true);
        check("get after the flush", client.get("a"), null);
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        java.util.logging.Logger.getLogger("net.spy.memcached").setLevel(java.util.logging.Level.SEVERE);
        ConnectionFactoryBuilder builder = new ConnectionFactoryBuilder().setProtocol(Protocol.BINARY).setOpTimeout(30_000);
        if (args.length > 2) {
            builder.setAuthDescriptor(new AuthDescriptor(new String[] {"PLAIN"}, new PlainCallbackHandler(args[2], args[3])));
        }
        List<InetSocketAddress> address = Arrays.asList(new InetSocketAddress(args[0], Integer.parseInt(args[1])));
        MemcachedClient client = new MemcachedClient(builder.build(), address);
        storage(client);
        many(client);
        numbers(client);
        cas(client);
        server(client);
        client.shutdown(5, TimeUnit.SECONDS);
        System.exit(failed ? 1 : 0);
    }
}
