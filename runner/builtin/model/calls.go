package model

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
)

// calls assembles the calls of a reply by their indexes.
type calls map[int]*assembledCall

type assembledCall struct {
	id, name  string
	arguments strings.Builder
}

var errCalls = errors.New("it has too many calls of tools, or too long arguments")

// at returns the call with an index.
func (c calls) at(index int) (*assembledCall, error) {
	if c[index] == nil {
		if len(c) == maxCalls {
			return nil, errCalls
		}
		c[index] = &assembledCall{}
	}
	return c[index], nil
}

func (a *assembledCall) add(arguments string) error {
	if a.arguments.Len()+len(arguments) > maxArguments {
		return errCalls
	}
	a.arguments.WriteString(arguments)
	return nil
}

// all returns the calls in their order. Some servers send no ids; each call then gets one, because its result needs it.
func (c calls) all() []Call {
	var all []Call
	for _, index := range slices.Sorted(maps.Keys(c)) {
		call := Call{c[index].id, c[index].name, c[index].arguments.String()}
		if call.ID == "" {
			call.ID = "call_" + rand.Text()
		}
		if strings.TrimSpace(call.Arguments) == "" {
			call.Arguments = "{}"
		}
		all = append(all, call)
	}
	return all
}

// object returns the arguments of a call for the next request. Servers refuse requests with invalid arguments, which become an empty
// object: the result of the call says that its arguments were invalid.
func (c Call) object() json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(c.Arguments), &fields) != nil || fields == nil {
		return json.RawMessage("{}")
	}
	return json.RawMessage(c.Arguments)
}
