// States deadlines by the header grpc-timeout, taken from a context.
//
//	sherwood serve --config examples/deadlines.toml
//	go run examples/deadlines/deadlines.go http://127.0.0.1:8080
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"net/http"
	"os"
	"strings"
	"time"
)

type answer struct {
	Results []struct {
		Status, Value, Error string
		Late                 bool
	}
}

// ask reads a key and returns the outcome: met, late, rejected or an error. The answer may come
// after the deadline of ctx: a deadline cuts nothing off.
func ask(ctx context.Context, gateway, key string) string {
	body := fmt.Sprintf(`{"queries":[{"backend":"ranking","keys":[%q]}]}`, key)
	request, err := http.NewRequest("POST", gateway+"/v1/requests", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := math.Max(0, float64(time.Until(deadline).Milliseconds())) // at 0 it is late in any case
		request.Header.Set("grpc-timeout", fmt.Sprintf("%.0fm", left))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	var got answer
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || len(got.Results) != 1 {
		return fmt.Sprintf("status %d: %v", response.StatusCode, err)
	}
	result := got.Results[0]
	if result.Status != "hit" && result.Status != "miss" {
		return result.Status // "rejected", or a failure, with result.Error
	}
	if result.Late {
		return "late"
	}
	return "met"
}

func main() {
	const requests = 20
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	outcomes, count := make(chan string), map[string]int{}
	for at := 0; at < requests; at++ {
		// Keys of its own, which are not cached yet.
		key := fmt.Sprintf("go:%d:%d", time.Now().UnixNano(), at)
		go func() { outcomes <- ask(ctx, os.Args[1], key) }()
	}
	for at := 0; at < requests; at++ {
		count[<-outcomes]++
	}
	fmt.Printf("%d requests: %d met, %d late, %d rejected\n", requests, count["met"], count["late"], count["rejected"])
	if count["met"]+count["late"]+count["rejected"] != requests {
		log.Fatal("failed: ", count)
	}
}
