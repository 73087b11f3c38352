# What Dalli, the client of Rails' cache store, asks of a memcached server, asked of the one at HOST PORT, and with a USER and a
# PASSWORD logged in by SASL.

require "dalli"

# What the listener is set to.
VALUE_BYTES_MAX = 1 << 20

$failed = false
Dalli.logger.level = Logger::FATAL

def check(what, got, expected)
  if got == expected
    puts "ok - #{what}"
  else
    $failed = true
    puts "not ok - #{what}: expected #{expected.inspect[0, 200]}, got #{got.inspect[0, 200]}"
  end
end

def refused(what, error)
  got = begin
    yield
  rescue error
    return check(what, true, true)
  end
  check(what, got, error)
end

def storage(client)
  check("set", client.set("a", "1").is_a?(Integer), true)
  check("get", client.get("a"), "1")
  check("get of nothing", client.get("none"), nil)
  check("add over something", client.add("a", "2"), false)
  check("add", client.add("b", "2").is_a?(Integer), true)
  check("replace of nothing", [false, nil, 0].include?(client.replace("none", "3")), true)
  check("an object", (client.set("o", { "x" => [1, nil] }); client.get("o")), { "x" => [1, nil] })
  client.set("raw", "3", 0, raw: true)
  check("append", [client.append("raw", "+"), client.prepend("raw", "-"), client.get("raw", raw: true)], [true, true, "-3+"])
  check("delete", [client.delete("b"), client.delete("b") || false], [true, false])
  check("touch", [client.touch("a", 100).nil?, client.touch("none", 100)], [false, nil])
  check("gat", [client.gat("a", 100), client.gat("none", 100)], ["1", nil])
  check("fetch computes what is missing", [client.fetch("f") { 5 }, client.fetch("f") { 6 }], [5, 5])
end

def many(client)
  values = (0...2000).to_h { |number| ["many-#{number}", number] }
  client.multi { values.each { |key, value| client.set(key, value) } }
  check("get_multi", client.get_multi(*values.keys, "none"), values)
  check("get_multi of nothing", client.get_multi("none", "neither"), {})
  values.each_key { |key| client.delete(key) }
  check("get_multi after deletes", client.get_multi(*values.keys), {})
end

def numbers(client)
  check("incr creates", client.incr("n", 1, 0, 9), 9)
  check("incr", client.incr("n", 2), 11)
  check("decr", client.decr("n", 20), 0)
  check("incr of nothing", client.incr("nothing", 1), nil)
  client.set("text", "x", 0, raw: true)
  refused("incr of text", Dalli::DalliError) { client.incr("text") }
end

def cas(client)
  client.set("c", 1)
  check("cas", client.cas("c") { |value| value + 1 }.is_a?(Integer), true)
  check("cas of what is changed meanwhile", client.cas("c") { |value| client.set("c", 9); value + 1 }, false)
  check("cas of nothing", client.cas("none") { 1 }, nil)
end

def limits(client)
  largest = "x" * VALUE_BYTES_MAX
  check("the largest value", client.set("l", largest, 0, raw: true).is_a?(Integer), true)
  check("the largest value back", client.get("l", raw: true) == largest, true)
  refused("one byte more", Dalli::DalliError) { client.set("l", largest + "x", 0, raw: true) }
  check("the connection still works", client.get("a"), "1")
end

def server(client)
  stats = client.stats.values.first
  check("stats", stats["curr_items"].to_i > 0 && stats["cmd_get"].to_i > 0, true)
  check("version", client.version.values.first.start_with?("1.6"), true)
  client.flush
  check("flush", client.get("a"), nil)
  client.close
  check("a client connects again", (client.set("a", 1); client.get("a")), 1)
end

host, port, username, password = ARGV
login = username ? { username: username, password: password } : {}
client = Dalli::Client.new("#{host}:#{port}", { value_max_bytes: VALUE_BYTES_MAX + (1 << 10), compress: false }.merge(login))
client.flush
storage(client)
many(client)
numbers(client)
cas(client)
limits(client)
server(client)
exit($failed ? 1 : 0)
