package modeltest

import (
	"encoding/json"

	"github.com/atelier-run/atelier/runner/builtin/model"
)

func decodeAnthropic(body []byte) (Request, error) {
	var in struct {
		Model    string          `json:"model"`
		System   json.RawMessage `json:"system"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, err
	}
	r := Request{Wire: model.Anthropic, Model: in.Model, MaxTokens: in.MaxTokens}
	for _, p := range parts(in.System) {
		r.System += p.Text
	}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, t.Name)
	}
	for _, m := range in.Messages {
		message := model.Message{Role: model.Role(m.Role)}
		hasOwn := false
		for _, p := range parts(m.Content) {
			switch p.Type {
			case "tool_result":
				result := model.Message{Role: model.ToolResult, CallID: p.UseID, IsError: p.IsError}
				fill(&result, parts(p.Content))
				r.Messages = append(r.Messages, result)
				continue
			case "tool_use":
				message.Calls = append(message.Calls, model.Call{ID: p.ID, Name: p.Name, Arguments: string(p.Input)})
			case "thinking":
				message.Thoughts = append(message.Thoughts, model.Thought{Text: p.Thinking, Signature: p.Sign})
			default:
				fill(&message, []part{p})
			}
			hasOwn = true
		}
		if hasOwn {
			r.Messages = append(r.Messages, message)
		}
	}
	return r, nil
}

func encodeAnthropic(r Request, reply Reply) script {
	var s script
	add := func(kind string, fields object) {
		fields["type"] = kind
		s.parts = append(s.parts, event{kind, fields})
	}
	index := 0
	block := func(begin object, deltas ...object) {
		add("content_block_start", object{"index": index, "content_block": begin})
		for _, d := range deltas {
			add("content_block_delta", object{"index": index, "delta": d})
		}
		add("content_block_stop", object{"index": index})
		index++
	}
	add("message_start", object{"message": object{
		"id": "msg_test", "type": "message", "role": "assistant", "model": r.Model, "content": []object{}, "stop_reason": nil,
		"usage": object{"input_tokens": reply.Usage.Input, "output_tokens": 1},
	}})
	add("ping", object{})
	if len(reply.Thoughts) > 0 {
		var deltas []object
		for _, t := range reply.Thoughts {
			deltas = append(deltas, object{"type": "thinking_delta", "thinking": t})
		}
		deltas = append(deltas, object{"type": "signature_delta", "signature": "signed"})
		block(object{"type": "thinking", "thinking": "", "signature": ""}, deltas...)
	}
	if len(reply.Text) > 0 {
		var deltas []object
		for _, t := range reply.Text {
			deltas = append(deltas, object{"type": "text_delta", "text": t})
		}
		block(object{"type": "text", "text": ""}, deltas...)
	}
	for _, c := range reply.Calls {
		var deltas []object
		for _, f := range fragments(c.Arguments) {
			deltas = append(deltas, object{"type": "input_json_delta", "partial_json": f})
		}
		block(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}}, deltas...)
	}
	reason := "end_turn"
	switch {
	case reply.Stop == model.Truncated:
		reason = "max_tokens"
	case reply.Stop == model.Refused:
		reason = "refusal"
	case len(reply.Calls) > 0:
		reason = "tool_use"
	}
	s.end = []event{
		{"message_delta", object{"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil},
			"usage": object{"output_tokens": reply.Usage.Output}}},
		{"message_stop", object{"type": "message_stop"}},
	}
	return s
}
