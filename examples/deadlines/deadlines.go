// States deadlines by the header grpc-timeout, taken from a context.
//
//	sherwood serve --config examples/deadlines.toml
//	go run examples/deadlines/deadlines.go http://127.0.0.1:8080 [DEADLINE, such as 200ms]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

const requests = 20

type answer struct {
	Results []struct {
		Status, Value, Error string
		Late                 bool
	}
}

// ask reads a key and returns `met`, `late`, `rejected` or an error. The answer may come after the
// deadline of ctx: a deadline cuts nothing off.
func ask(ctx context.Context, gateway, key string) string {
	body := fmt.Sprintf(`{"queries":[{"backend":"ranking","keys":[%q]}]}`, key)
	request, err := http.NewRequest("POST", gateway+"/v1/requests", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline).Milliseconds()
		if left < 0 {
			left = 0 // the answer is late in any case
		}
		request.Header.Set("grpc-timeout", fmt.Sprintf("%dm", left))
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
	switch result := got.Results[0]; {
	case result.Status == "rejected":
		return "rejected"
	case result.Status != "hit" && result.Status != "miss":
		return result.Error
	case result.Late:
		return "late"
	}
	return "met"
}

func main() {
	within := 200 * time.Millisecond
	if len(os.Args) > 2 {
		within, _ = time.ParseDuration(os.Args[2])
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	run := time.Now().UnixNano() // keys of its own, which are not cached yet
	outcomes, count := make(chan string), map[string]int{}
	for at := 0; at < requests; at++ {
		go func(key string) { outcomes <- ask(ctx, os.Args[1], key) }(fmt.Sprintf("go:%d:%d", run, at))
	}
	for at := 0; at < requests; at++ {
		count[<-outcomes]++
	}
	fmt.Printf("%d requests: %d met, %d late, %d rejected\n", requests, count["met"], count["late"], count["rejected"])
	if count["met"]+count["late"]+count["rejected"] != requests {
		fmt.Fprintln(os.Stderr, "failed:", count)
		os.Exit(1)
	}
}
