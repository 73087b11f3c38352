// What gomemcache asks of a memcached server, asked of the one at HOST PORT.
package main

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"sherwood/conformance/check"
)

// What the listener is set to.
const valueBytesMax = 1 << 20

func value(client *memcache.Client, key string) string {
	item, err := client.Get(key)
	if err != nil {
		return err.Error()
	}
	return string(item.Value)
}

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value)}
}

func storage(client *memcache.Client) {
	check.Done("set", client.Set(item("a", "1")))
	check.That("get", value(client, "a"), "1")
	_, err := client.Get("none")
	check.That("get of nothing", err, memcache.ErrCacheMiss)
	check.That("add over something", client.Add(item("a", "2")), memcache.ErrNotStored)
	check.Done("add", client.Add(item("b", "2")))
	check.Done("replace", client.Replace(item("b", "3")))
	check.That("replace of nothing", client.Replace(item("none", "3")), memcache.ErrNotStored)
	check.Done("append", client.Append(item("b", "+")))
	check.Done("prepend", client.Prepend(item("b", "-")))
	check.That("get of both", value(client, "b"), "-3+")
	any := make([]byte, 256)
	for at := range any {
		any[at] = byte(at)
	}
	check.Done("any bytes as value", client.Set(&memcache.Item{Key: "bin", Value: any, Flags: 1<<32 - 1}))
	back, err := client.Get("bin")
	check.Done("any bytes back", err)
	check.That("the same bytes and flags", bytes.Equal(back.Value, any) && back.Flags == 1<<32-1, true)
	check.Done("an empty value", client.Set(item("empty", "")))
	check.That("an empty value back", value(client, "empty"), "")
	check.Done("delete", client.Delete("b"))
	check.That("delete of nothing", client.Delete("b"), memcache.ErrCacheMiss)
}

func many(client *memcache.Client) {
	var keys []string
	for number := range 2000 {
		keys = append(keys, fmt.Sprint("many-", number))
		if err := client.Set(item(keys[number], keys[number])); err != nil {
			check.Done(keys[number], err)
		}
	}
	items, err := client.GetMulti(append(keys, "none"))
	check.Done("2,000 keys", err)
	right := 0
	for _, key := range keys {
		if found, ok := items[key]; ok && string(found.Value) == key {
			right++
		}
	}
	check.That("2,000 values", [2]int{right, len(items)}, [2]int{2000, 2000})
}

func cas(client *memcache.Client) {
	check.Done("set", client.Set(item("c", "1")))
	mine, _ := client.Get("c")
	theirs, _ := client.Get("c")
	mine.Value = []byte("2")
	check.Done("cas", client.CompareAndSwap(mine))
	check.That("cas of what was changed", client.CompareAndSwap(theirs), memcache.ErrCASConflict)
	check.Done("delete", client.Delete("c"))
	check.That("cas of nothing", client.CompareAndSwap(theirs), memcache.ErrCacheMiss)
}

func numbers(client *memcache.Client) {
	check.Done("set", client.Set(item("n", "9")))
	up, err := client.Increment("n", 2)
	check.That("incr", [2]any{up, err}, [2]any{uint64(11), error(nil)})
	down, err := client.Decrement("n", 20)
	check.That("decr", [2]any{down, err}, [2]any{uint64(0), error(nil)})
	_, err = client.Increment("none", 1)
	check.That("incr of nothing", err, memcache.ErrCacheMiss)
	check.Done("set", client.Set(item("n", "x")))
	_, err = client.Increment("n", 1)
	check.Refused("incr of text", err, "non-numeric")
}

func times(client *memcache.Client) {
	check.Done("set that expires", client.Set(&memcache.Item{Key: "t", Value: []byte("x"), Expiration: 100}))
	check.Done("touch", client.Touch("t", 200))
	check.That("touch of nothing", client.Touch("none", 200), memcache.ErrCacheMiss)
	touched, err := client.GetAndTouch("t", 300)
	check.Done("gat", err)
	check.That("gat has the value", string(touched.Value), "x")
	check.Done("touched away", client.Touch("t", -1))
	check.That("gone", value(client, "t"), memcache.ErrCacheMiss.Error())
}

func limits(client *memcache.Client) {
	largest := bytes.Repeat([]byte("x"), valueBytesMax)
	check.Done("the largest value", client.Set(&memcache.Item{Key: "l", Value: largest}))
	check.That("the largest value back", value(client, "l") == string(largest), true)
	err := client.Set(&memcache.Item{Key: "l", Value: append(largest, 'x')})
	check.Refused("one byte more", err, "too large")
	check.That("nobody reads the value it was to replace", value(client, "l"), memcache.ErrCacheMiss.Error())
	check.That("a key that is too long", client.Set(item(string(largest[:251]), "x")), memcache.ErrMalformedKey)
}

// More goroutines than connections that are kept.
func pool(client *memcache.Client) {
	var wrong sync.Map
	var all sync.WaitGroup
	for task := range 16 {
		all.Go(func() {
			for number := range 100 {
				key := fmt.Sprint("pool-", task, "-", number)
				if err := client.Set(item(key, key)); err != nil || value(client, key) != key {
					wrong.Store(key, err)
				}
			}
		})
	}
	all.Wait()
	count := 0
	wrong.Range(func(any, any) bool { count++; return true })
	check.That("sixteen goroutines", count, 0)
}

func main() {
	client := memcache.New(os.Args[1] + ":" + os.Args[2])
	client.Timeout = time.Minute
	client.MaxIdleConns = 4
	check.Done("ping", client.Ping())
	check.Done("flush_all", client.FlushAll())
	for _, part := range []func(*memcache.Client){storage, many, cas, numbers, times, limits, pool} {
		part(client)
	}
	check.Done("close", client.Close())
	check.Done("a client connects again", client.Set(item("again", "x")))
	check.Done("flush_all again", client.FlushAll())
	check.That("flushed", value(client, "again"), memcache.ErrCacheMiss.Error())
	check.End()
}
