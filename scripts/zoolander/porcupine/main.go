// Checks that each session at a store sees each key as a register: all writes of the key and the
// session's reads have one order that agrees with their times.
//
//	porcupine HISTORY
//
// Reads of different sessions are checked apart: of two reads during a write, the earlier one may
// see it when the later one does not yet. Lines of the file are JSON objects: kind "write" or
// "read", key, client (of the session), value (empty: removed or absent), begun and ended in
// nanoseconds, and unknown for a write that may be made later or never.
//
// Exit status: 0 if all are registers, 1 if one is not, 2 if the file or a key could not be checked.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// Longest search for the order of one key's operations.
const searchMax = time.Minute

type operation struct {
	Kind, Key, Client, Value string
	Begun, Ended             int64
	Unknown                  bool
}

// Writes of a key, and reads by client.
type history struct {
	writes []operation
	reads  map[string][]operation
}

var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		op := input.(operation)
		if op.Kind == "write" {
			return true, op.Value
		}
		return op.Value == state.(string), state
	},
}

// Returns the history of each key in a file.
func read(path string) (map[string]*history, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	keys := map[string]*history{}
	lines := json.NewDecoder(file)
	for {
		var op operation
		if err := lines.Decode(&op); err == io.EOF {
			return keys, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		of := keys[op.Key]
		if of == nil {
			of = &history{reads: map[string][]operation{}}
			keys[op.Key] = of
		}
		if op.Kind == "write" {
			of.writes = append(of.writes, op)
		} else {
			of.reads[op.Client] = append(of.reads[op.Client], op)
		}
	}
}

// Returns what Porcupine checks. A write of unknown outcome has happened when its value has been
// read, and has not if nobody read it; a removal may have, at any time.
func operations(writes, reads []operation) []porcupine.Operation {
	seen := map[string]int64{}
	for _, op := range reads {
		if ended, has := seen[op.Value]; !has || op.Ended < ended {
			seen[op.Value] = op.Ended
		}
	}
	var all []porcupine.Operation
	for _, op := range append(append([]operation{}, writes...), reads...) {
		if op.Unknown && op.Value == "" {
			op.Ended = math.MaxInt64
		} else if op.Unknown {
			ended, has := seen[op.Value]
			if !has {
				continue
			}
			op.Ended = ended
		}
		all = append(all, porcupine.Operation{Input: op, Call: op.Begun, Return: op.Ended})
	}
	return all
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: porcupine HISTORY")
		os.Exit(2)
	}
	keys, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	status := 0
	for key, of := range keys {
		for client, reads := range of.reads {
			all := operations(of.writes, reads)
			switch porcupine.CheckOperationsTimeout(register, all, searchMax) {
			case porcupine.Illegal:
				fmt.Printf("%s: no order of its %d operations explains what %s read\n", key, len(all), client)
				if status == 0 {
					status = 1
				}
			case porcupine.Unknown:
				fmt.Fprintf(os.Stderr, "%s: no order found for %s in %v\n", key, client, searchMax)
				status = 2
			}
		}
	}
	os.Exit(status)
}
