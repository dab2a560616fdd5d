package modeltest

import (
	"encoding/json"
	"fmt"

	"github.com/atelier-run/atelier/runner/builtin/model"
)

func decodeResponses(body []byte) (Request, error) {
	var in struct {
		Model        string          `json:"model"`
		Instructions string          `json:"instructions"`
		Input        json.RawMessage `json:"input"`
		Tools        []struct {
			Type string `json:"type"`
			Name string `json:"name"`
		} `json:"tools"`
		MaxTokens int `json:"max_output_tokens"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, err
	}
	r := Request{Wire: model.Responses, Model: in.Model, System: in.Instructions, MaxTokens: in.MaxTokens}
	for _, t := range in.Tools {
		if t.Name == "" {
			t.Name = t.Type // a tool of the server's
		}
		r.Tools = append(r.Tools, t.Name)
	}
	var text string
	if json.Unmarshal(in.Input, &text) == nil {
		r.Messages = []model.Message{{Role: model.User, Text: text}}
		return r, nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(in.Input, &items); err != nil {
		return Request{}, err
	}
	for _, item := range items {
		if err := r.addItem(item); err != nil {
			return Request{}, err
		}
	}
	return r, nil
}

func (r *Request) addItem(raw json.RawMessage) error {
	var item struct {
		Type      string          `json:"type"`
		Role      string          `json:"role"`
		Content   json.RawMessage `json:"content"`
		CallID    string          `json:"call_id"`
		Name      string          `json:"name"`
		Arguments string          `json:"arguments"`
		Output    json.RawMessage `json:"output"`
	}
	if err := json.Unmarshal(raw, &item); err != nil {
		return err
	}
	var message model.Message
	switch item.Type {
	case "function_call":
		call := model.Call{ID: item.CallID, Name: item.Name, Arguments: item.Arguments}
		message = model.Message{Role: model.Assistant, Calls: []model.Call{call}}
	case "function_call_output":
		message = model.Message{Role: model.ToolResult, CallID: item.CallID}
		fill(&message, parts(item.Output))
	case "reasoning":
		message = model.Message{Role: model.Assistant, Thoughts: []model.Thought{{Raw: string(raw)}}}
	default:
		message.Role = model.Role(item.Role)
		fill(&message, parts(item.Content))
		if item.Role == "system" || item.Role == "developer" {
			r.System += message.Text
			return nil
		}
	}
	// One message of the model is several items.
	if last := len(r.Messages) - 1; last >= 0 && message.Role == model.Assistant && r.Messages[last].Role == model.Assistant {
		before := &r.Messages[last]
		before.Text += message.Text
		before.Calls = append(before.Calls, message.Calls...)
		before.Thoughts = append(before.Thoughts, message.Thoughts...)
		return nil
	}
	r.Messages = append(r.Messages, message)
	return nil
}

// responsesStream numbers the events and items of a reply.
type responsesStream struct {
	events   []event
	output   []object
	sequence int
}

func (s *responsesStream) add(kind string, fields object) {
	fields["type"], fields["sequence_number"] = kind, s.sequence
	s.sequence++
	s.events = append(s.events, event{kind, fields})
}

func (s *responsesStream) begin(item object) (index int) {
	index = len(s.output)
	s.output = append(s.output, nil)
	s.add("response.output_item.added", object{"output_index": index, "item": item})
	return index
}

func (s *responsesStream) done(index int, item object) {
	s.output[index] = item
	s.add("response.output_item.done", object{"output_index": index, "item": item})
}

func encodeResponses(r Request, reply Reply) script {
	s := &responsesStream{}
	response := func(status string) object {
		return object{
			"id": "resp_test", "object": "response", "created_at": 1, "model": r.Model, "status": status, "output": s.output,
		}
	}
	s.add("response.created", object{"response": response("in_progress")})
	if len(reply.Thoughts) > 0 {
		index := s.begin(object{"id": "rs_test", "type": "reasoning", "summary": []object{}})
		all := ""
		for _, t := range reply.Thoughts {
			all += t
			s.add("response.reasoning_summary_text.delta", object{
				"item_id": "rs_test", "output_index": index, "summary_index": 0, "delta": t,
			})
		}
		s.done(index, object{"id": "rs_test", "type": "reasoning", "encrypted_content": "sealed",
			"summary": []object{{"type": "summary_text", "text": all}}})
	}
	if len(reply.Text) > 0 {
		index := s.begin(object{
			"id": "msg_test", "type": "message", "role": "assistant", "status": "in_progress", "content": []object{},
		})
		s.add("response.content_part.added", object{"item_id": "msg_test", "output_index": index, "content_index": 0,
			"part": object{"type": "output_text", "text": "", "annotations": []object{}}})
		all := ""
		for _, t := range reply.Text {
			all += t
			s.add("response.output_text.delta", object{
				"item_id": "msg_test", "output_index": index, "content_index": 0, "delta": t,
			})
		}
		s.done(index, object{"id": "msg_test", "type": "message", "role": "assistant", "status": "completed",
			"content": []object{{"type": "output_text", "text": all, "annotations": []object{}}}})
	}
	for i, c := range reply.Calls {
		id := fmt.Sprintf("fc_test_%d", i)
		index := s.begin(object{"id": id, "type": "function_call", "call_id": c.ID, "name": c.Name, "arguments": ""})
		for _, f := range fragments(c.Arguments) {
			s.add("response.function_call_arguments.delta", object{"item_id": id, "output_index": index, "delta": f})
		}
		s.done(index, object{"id": id, "type": "function_call", "call_id": c.ID, "name": c.Name, "arguments": c.Arguments,
			"status": "completed"})
	}
	events := script{parts: s.events}
	s.events = nil
	last, kind := response("completed"), "response.completed"
	last["usage"] = object{
		"input_tokens": reply.Usage.Input, "output_tokens": reply.Usage.Output,
		"total_tokens":         reply.Usage.Input + reply.Usage.Output,
		"input_tokens_details": object{"cached_tokens": 0}, "output_tokens_details": object{"reasoning_tokens": 0},
	}
	reasons := map[model.Stop]string{model.Truncated: "max_output_tokens", model.Refused: "content_filter"}
	if reason := reasons[reply.Stop]; reason != "" {
		kind, last["status"], last["incomplete_details"] = "response.incomplete", "incomplete", object{"reason": reason}
	}
	s.add(kind, object{"response": last})
	events.end = s.events
	return events
}
