package reporter

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

const never = 10 * time.Minute

func TestReportsArriveInBatches(t *testing.T) {
	got := make(chan []map[string]any, 10)
	node := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		var batch []map[string]any
		if request.URL.Path == "/v1/reports" && request.Header.Get("authorization") == "Bearer secret" {
			_ = json.NewDecoder(request.Body).Decode(&batch)
		}
		got <- batch
	}))
	defer node.Close()
	reporter := New(node.URL, Options{Token: "secret", BatchMax: 2, Interval: never})
	reporter.Report(Report{Latency: 250 * time.Millisecond, Blocking: "a", Class: "page", Tenant: "shop"})
	reporter.Report(Report{Latency: time.Millisecond})
	reporter.Report(Report{Latency: time.Millisecond})
	reporter.Close(context.Background())
	first, second := <-got, <-got
	if len(first) != 2 || len(second) != 1 || first[1]["blocking"] != nil {
		t.Fatal(first, second)
	}
	report := first[0]
	if report["latency_us"] != 250_000.0 || report["blocking"] != "a" || report["class"] != "page" ||
		report["tenant"] != "shop" || report["t"].(float64) < 1.6e12 {
		t.Fatal(report)
	}
	if counts := reporter.Counts(); counts != (Counts{Sent: 3}) {
		t.Fatal(counts)
	}
}

func TestReportsThatTheNodeRefusesAreLost(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		_, _ = answer.Write([]byte(`{"accepted":1,"dropped":0,"refused":1,"error":"report 0: no backend"}`))
	}))
	defer node.Close()
	reporter := New(node.URL, Options{Interval: never})
	reporter.Report(Report{Latency: time.Millisecond, Blocking: "unknown"})
	reporter.Report(Report{Latency: time.Millisecond})
	reporter.Close(context.Background())
	if counts := reporter.Counts(); counts.Sent != 1 || counts.Lost != 1 || counts.LastError == nil {
		t.Fatal(counts)
	}
}

func TestAbsentNodeLosesReports(t *testing.T) {
	node := httptest.NewServer(nil)
	node.Close()
	reporter := New(node.URL, Options{Interval: never})
	reporter.Report(Report{Latency: time.Millisecond, Blocking: "a"})
	reporter.Close(context.Background())
	if counts := reporter.Counts(); counts.Sent != 0 || counts.Lost != 1 || counts.LastError == nil {
		t.Fatal(counts)
	}
}

func TestSilentNodeHoldsNoMoreThanQueueAndBatch(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	options := Options{QueueMax: 10, BatchMax: 10, Interval: never, Timeout: never}
	reporter := New("http://"+silent.Addr().String(), options)
	for range make([]struct{}, 100) {
		reporter.Report(Report{Latency: time.Millisecond})
	}
	if counts := reporter.Counts(); counts.Lost < 80 {
		t.Fatal(counts)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	reporter.Close(over)
	if counts := reporter.Counts(); counts.Sent != 0 || counts.Lost != 100 {
		t.Fatal(counts)
	}
}

func TestNodeTakesReports(t *testing.T) {
	url := os.Getenv("SHERWOOD_URL")
	if url == "" {
		t.Skip("SHERWOOD_URL names no node")
	}
	reporter := New(url, Options{})
	for range make([]struct{}, 100) {
		reporter.Report(Report{Latency: 100 * time.Millisecond, Blocking: "a"})
	}
	reporter.Close(context.Background())
	if counts := reporter.Counts(); counts != (Counts{Sent: 100}) {
		t.Fatal(counts)
	}
}
