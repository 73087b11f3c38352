# Reads keys from the memcached at HOST PORT with Dalli, or with Rails' cache store, as an application does: a missed value is
# computed, which takes MS, and stored.

require "dalli"

host, port, library, ms = ARGV
keys = (0...8).map { |number| "k#{number}" }
compute = -> { sleep(ms.to_i / 1000.0); "value" }

values =
  if library == "rails"
    require "active_support"
    require "active_support/cache"
    store = ActiveSupport::Cache::MemCacheStore.new("#{host}:#{port}")
    keys.each { |key| store.fetch(key) { compute.call } }
    keys.map { |key| store.read(key) }
  else
    client = Dalli::Client.new("#{host}:#{port}")
    keys.each { |key| client.fetch(key) { compute.call } }
    keys.map { |key| client.get(key) }
  end
puts values == ["value"] * keys.size ? "ok - all values" : "not ok - #{values}"
