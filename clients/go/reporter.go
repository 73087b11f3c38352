// Package reporter reports the latency and the slowest backend of finished requests to a Sherwood
// node.
package reporter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options of a reporter; zero values select the defaults.
type Options struct {
	// Token that the node asks for; empty if it asks for none.
	Token string
	// Most reports that wait; further ones are dropped. Default 10,000.
	QueueMax int
	// Most reports of a batch, at most 100,000. Default 1,000.
	BatchMax int
	// Time between batches that are not full. Default 1 s.
	Interval time.Duration
	// Time after which a batch without an answer is lost. Default 5 s.
	Timeout time.Duration
}

// Report of a request that has ended.
type Report struct {
	// Time from the start of the request to its end.
	Latency time.Duration
	// Backend of the query that ended last; empty if there was no query.
	Blocking string
	// Class and tenant with SLOs of their own; empty if there are none.
	Class, Tenant string
}

// Counts of reports since the start.
type Counts struct {
	// Reports that the node took.
	Sent uint64
	// Reports dropped because the queue was full, those of batches that failed, and those that the
	// node refused.
	Lost uint64
	// Error of the last batch of which a report was lost.
	LastError error
}

// Reporter sends reports in batches from a goroutine of its own.
type Reporter struct {
	url     string
	options Options
	client  http.Client
	queue   chan body
	closing chan struct{}
	closed  chan struct{}
	stop    context.CancelFunc
	context context.Context
	close   sync.Once

	lock   sync.Mutex
	counts Counts
}

// The report as the node reads it.
type body struct {
	LatencyUs int64   `json:"latency_us"`
	Blocking  *string `json:"blocking"`
	T         int64   `json:"t"`
	Class     string  `json:"class,omitempty"`
	Tenant    string  `json:"tenant,omitempty"`
}

// New starts to report to the admin API at url, such as http://127.0.0.1:8080.
func New(url string, options Options) *Reporter {
	options.QueueMax = or(options.QueueMax, 10_000)
	options.BatchMax = min(or(options.BatchMax, 1_000), 100_000)
	options.Interval = or(options.Interval, time.Second)
	options.Timeout = or(options.Timeout, 5*time.Second)
	ctx, stop := context.WithCancel(context.Background())
	reporter := &Reporter{
		url:     strings.TrimRight(url, "/") + "/v1/reports",
		options: options,
		client:  http.Client{Timeout: options.Timeout},
		queue:   make(chan body, options.QueueMax),
		closing: make(chan struct{}),
		closed:  make(chan struct{}),
		stop:    stop,
		context: ctx,
	}
	go reporter.run()
	return reporter
}

func or[T int | time.Duration](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// Report reports a request that ended now. It never waits, and must not be called after Close.
func (r *Reporter) Report(report Report) {
	sent := body{
		LatencyUs: max(0, report.Latency.Microseconds()),
		T:         time.Now().UnixMilli(),
		Class:     report.Class,
		Tenant:    report.Tenant,
	}
	if report.Blocking != "" {
		sent.Blocking = &report.Blocking
	}
	select {
	case r.queue <- sent:
	default:
		r.count(func(counts *Counts) { counts.Lost++ })
	}
}

// Counts returns what became of the reports.
func (r *Reporter) Counts() Counts {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.counts
}

// Close sends what waits, and stops. Once ctx is done, what has not been sent is lost.
func (r *Reporter) Close(ctx context.Context) {
	r.close.Do(func() { close(r.closing) })
	select {
	case <-r.closed:
	case <-ctx.Done():
		r.stop()
		<-r.closed
	}
}

func (r *Reporter) count(add func(*Counts)) {
	r.lock.Lock()
	defer r.lock.Unlock()
	add(&r.counts)
}

func (r *Reporter) run() {
	defer close(r.closed)
	ticks := time.NewTicker(r.options.Interval)
	defer ticks.Stop()
	batch := make([]body, 0, r.options.BatchMax)
	for {
		full, closing := false, false
		select {
		case report := <-r.queue:
			batch = append(batch, report)
			full = len(batch) == cap(batch)
		case <-ticks.C:
			full = len(batch) > 0
		case <-r.closing:
			closing = true
		}
		if full {
			r.send(batch)
			batch = batch[:0]
		}
		if closing {
			r.drain(batch)
			return
		}
	}
}

// drain sends a batch that was begun, and what waits.
func (r *Reporter) drain(batch []body) {
	for {
		select {
		case report := <-r.queue:
			batch = append(batch, report)
			if len(batch) == cap(batch) {
				r.send(batch)
				batch = batch[:0]
			}
		default:
			if len(batch) > 0 {
				r.send(batch)
			}
			return
		}
	}
}

func (r *Reporter) send(batch []body) {
	lost, err := r.post(batch)
	r.count(func(counts *Counts) {
		counts.Sent += uint64(len(batch) - lost)
		counts.Lost += uint64(lost)
		if err != nil {
			counts.LastError = err
		}
	})
}

// post sends a batch and returns the number of reports that the node did not take.
func (r *Reporter) post(batch []body) (int, error) {
	text, err := json.Marshal(batch)
	if err != nil {
		return len(batch), err
	}
	request, err := http.NewRequestWithContext(r.context, http.MethodPost, r.url, bytes.NewReader(text))
	if err != nil {
		return len(batch), err
	}
	request.Header.Set("content-type", "application/json")
	if r.options.Token != "" {
		request.Header.Set("authorization", "Bearer "+r.options.Token)
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return len(batch), err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("reporting %d requests: %s: %s", len(batch), answer.Status, said)
	}
	if err != nil {
		return len(batch), err
	}
	var view struct {
		Refused int    `json:"refused"`
		Error   string `json:"error"`
	}
	if json.Unmarshal(said, &view) != nil || view.Refused == 0 {
		return 0, nil
	}
	return min(view.Refused, len(batch)), fmt.Errorf("%d of %d reports were refused: %s", view.Refused, len(batch), view.Error)
}
