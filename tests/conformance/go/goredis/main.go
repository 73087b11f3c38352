// What go-redis asks of a Redis server that is used as a cache, asked of the one at HOST PORT, in both versions of RESP.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sherwood/conformance/check"
)

// What the listener is set to.
const valueBytesMax = 1 << 20

var ctx = context.Background()

// A value and no error.
func result[T any](what string, expected T) func(T, error) {
	return func(got T, err error) { check.That(what, [2]any{got, err}, [2]any{expected, error(nil)}) }
}

func allBytes() string {
	var text strings.Builder
	for at := range 256 {
		text.WriteByte(byte(at))
	}
	return text.String()
}

func stringsOf(client *redis.Client) {
	result("set", "OK")(client.Set(ctx, "a", "1", 0).Result())
	result("get", "1")(client.Get(ctx, "a").Result())
	check.That("get of nothing", client.Get(ctx, "none").Err(), error(redis.Nil))
	result("set nx over something", false)(client.SetNX(ctx, "a", "2", 0).Result())
	result("set get", "1")(client.SetArgs(ctx, "a", "3", redis.SetArgs{Get: true}).Result())
	result("getex", "3")(client.GetEx(ctx, "a", time.Minute).Result())
	result("getdel", "3")(client.GetDel(ctx, "a").Result())
	result("append", int64(3))(client.Append(ctx, "b", "abc").Result())
	result("getrange", "bc")(client.GetRange(ctx, "b", 1, -1).Result())
	result("setrange", int64(3))(client.SetRange(ctx, "b", 1, "x").Result())
	result("strlen", int64(3))(client.StrLen(ctx, "b").Result())
	any := allBytes()
	result("any bytes as value", "OK")(client.Set(ctx, "bin", any, 0).Result())
	result("any bytes back", any)(client.Get(ctx, "bin").Result())
	result("any bytes as key", "OK")(client.Set(ctx, any[:250], "x", 0).Result())
	result("the value of such a key", "x")(client.Get(ctx, any[:250]).Result())
	result("an empty value", "OK")(client.Set(ctx, "empty", "", 0).Result())
	result("an empty value back", "")(client.Get(ctx, "empty").Result())
}

func limits(client *redis.Client) {
	largest := strings.Repeat("x", valueBytesMax)
	result("the largest value", "OK")(client.Set(ctx, "large", largest, 0).Result())
	result("the largest value back", largest)(client.Get(ctx, "large").Result())
	check.Refused("one byte more", client.Set(ctx, "large", largest+"x", 0).Err(), "string exceeds maximum")
	check.That("nobody reads the value it was to replace", client.Get(ctx, "large").Err(), error(redis.Nil))
	result("the connection still works", "PONG")(client.Ping(ctx).Result())
}

func many(client *redis.Client) {
	result("mset", "OK")(client.MSet(ctx, "m1", 1, "m2", 2).Result())
	result("mget", []any{"1", nil, "2"})(client.MGet(ctx, "m1", "none", "m2").Result())
	result("msetnx", false)(client.MSetNX(ctx, "m2", 3, "m3", 3).Result())
	result("exists", int64(2))(client.Exists(ctx, "m1", "m2", "m3").Result())
	result("del", int64(2))(client.Del(ctx, "m1", "m2", "m3").Result())
	answers, err := client.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
		for key := range 1000 {
			pipeline.Set(ctx, fmt.Sprint("p", key), key, 0)
		}
		for key := range 1000 {
			pipeline.Get(ctx, fmt.Sprint("p", key))
		}
		return nil
	})
	check.That("a pipeline of 2,000", [2]any{len(answers), err}, [2]any{2000, error(nil)})
	check.That("its last answer", answers[1999].(*redis.StringCmd).Val(), "999")
	var keys, values []string
	for key := range 10_000 {
		keys = append(keys, fmt.Sprintf("many:%04d", key))
		values = append(values, keys[key], keys[key])
	}
	result("mset of 10,000", "OK")(client.MSet(ctx, values).Result())
	found, err := client.MGet(ctx, keys...).Result()
	right := 0
	for at := range found {
		if found[at] == keys[at] {
			right++
		}
	}
	check.That("mget of 10,000", [2]any{right, err}, [2]any{10_000, error(nil)})
	var seen []string
	scan := client.Scan(ctx, 0, "many:*", 1000).Iterator()
	for scan.Next(ctx) {
		seen = append(seen, scan.Val())
	}
	sort.Strings(seen)
	check.That("a scan through all keys", [2]any{seen, scan.Err()}, [2]any{keys, error(nil)})
	result("unlink of 10,000", int64(10_000))(client.Unlink(ctx, keys...).Result())
}

func errorsInAPipeline(client *redis.Client) {
	result("set", "OK")(client.Set(ctx, "word", "x", 0).Result())
	var number *redis.IntCmd
	var word *redis.StringCmd
	_, err := client.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
		number = pipeline.Incr(ctx, "word")
		word = pipeline.Get(ctx, "word")
		return nil
	})
	check.Refused("the error of a pipeline", err, "not an integer")
	check.Refused("the error of its command", number.Err(), "not an integer")
	result("the answer after it", "x")(word.Result())
	check.Refused("lists", client.LPush(ctx, "l", 1).Err(), "unknown command")
}

func numbers(client *redis.Client) {
	result("incrby", int64(5))(client.IncrBy(ctx, "n", 5).Result())
	result("decrby", int64(3))(client.DecrBy(ctx, "n", 2).Result())
	result("incrbyfloat", 3.5)(client.IncrByFloat(ctx, "n", 0.5).Result())
	check.Refused("incr of a fraction", client.Incr(ctx, "n").Err(), "not an integer")
}

func lifetimes(client *redis.Client) {
	result("set with a time", "OK")(client.Set(ctx, "t", "1", 20*time.Millisecond).Result())
	deadline := time.Now().Add(20 * time.Second)
	for client.Exists(ctx, "t").Val() == 1 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	result("a key with 20 ms to live ends", int64(0))(client.Exists(ctx, "t").Result())
	result("set", "OK")(client.Set(ctx, "t", "1", 0).Result())
	result("expire", true)(client.Expire(ctx, "t", 100*time.Second).Result())
	result("expire nx", false)(client.ExpireNX(ctx, "t", time.Second).Result())
	left := client.PTTL(ctx, "t").Val()
	check.That("pttl", left > 50*time.Second && left <= 100*time.Second, true)
	at := time.Now().Add(1000 * time.Second).Truncate(time.Second)
	result("expireat", true)(client.ExpireAt(ctx, "t", at).Result())
	result("expiretime", time.Duration(at.Unix())*time.Second)(client.ExpireTime(ctx, "t").Result())
	result("persist", true)(client.Persist(ctx, "t").Result())
	result("ttl of what stays", time.Duration(-1))(client.TTL(ctx, "t").Result())
	result("ttl of nothing", time.Duration(-2))(client.TTL(ctx, "none").Result())
	result("rename", "OK")(client.Rename(ctx, "t", "t2").Result())
	result("copy", int64(1))(client.Copy(ctx, "t2", "t3", 0, false).Result())
}

func about(client *redis.Client) {
	info, err := client.InfoMap(ctx, "server").Result()
	check.That("info", [2]any{info["Server"]["redis_mode"], err}, [2]any{"standalone", error(nil)})
	result("config get", map[string]string{"appendonly": "no"})(client.ConfigGet(ctx, "appendonly").Result())
	result("type", "string")(client.Type(ctx, "n").Result())
	result("object encoding", "embstr")(client.ObjectEncoding(ctx, "n").Result())
	check.Done("object idletime", client.ObjectIdleTime(ctx, "n").Err())
	commands, err := client.Command(ctx).Result()
	check.Done("command", err)
	check.That("what is known of get", commands["get"] != nil && commands["get"].ReadOnly && commands["get"].Arity == 2, true)
	list, err := client.ClientList(ctx).Result()
	check.That("client list", [2]any{strings.Contains(list, "lib-name=go-redis"), err}, [2]any{true, error(nil)})
	info2, err := client.ClientInfo(ctx).Result()
	check.Done("client info", err)
	check.That("the name of a connection", info2 != nil && info2.Name == "me", true)
	result("flushdb", "OK")(client.FlushDB(ctx).Result())
	result("dbsize", int64(0))(client.DBSize(ctx).Result())
}

// More goroutines than connections, and connections that the server closes.
func pool(client *redis.Client) {
	var all sync.WaitGroup
	var wrong sync.Map
	for task := range 16 {
		all.Go(func() {
			for number := range 100 {
				key := fmt.Sprint("pool:", task, ":", number)
				client.Set(ctx, key, number, 0)
				if got, err := client.Get(ctx, key).Int(); got != number || err != nil {
					wrong.Store(key, err)
				}
				if number%50 == 49 {
					client.Do(ctx, "QUIT")
				}
			}
		})
	}
	all.Wait()
	count := 0
	wrong.Range(func(any, any) bool { count++; return true })
	check.That("sixteen goroutines over four connections that are closed at times", count, 0)
}

func main() {
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{
			Addr:        os.Args[1] + ":" + os.Args[2],
			Protocol:    protocol,
			ClientName:  "me",
			PoolSize:    4,
			PoolTimeout: time.Minute,
			ReadTimeout: time.Minute,
		})
		result("flushall", "OK")(client.FlushAll(ctx).Result())
		for _, part := range []func(*redis.Client){
			stringsOf, limits, many, errorsInAPipeline, numbers, lifetimes, about, pool,
		} {
			part(client)
		}
		check.Done("close", client.Close())
	}
	check.End()
}
