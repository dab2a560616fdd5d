package modeltest

import (
	"encoding/json"

	"github.com/atelier-run/atelier/runner/builtin/model"
)

// part is a part of a content in any of the formats.
type part struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	Sign     string          `json:"signature"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	UseID    string          `json:"tool_use_id"`
	IsError  bool            `json:"is_error"`
	Content  json.RawMessage `json:"content"`
	ImageURL json.RawMessage `json:"image_url"`
	Source   struct {
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

// parts reads a content, which is a text or a list of parts.
func parts(content json.RawMessage) []part {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []part{{Type: "text", Text: text}}
	}
	var list []part
	_ = json.Unmarshal(content, &list) // null, or a format that no client of the tests sends
	return list
}

// fill adds texts and images to a message.
func fill(m *model.Message, list []part) {
	for _, p := range list {
		m.Text += p.Text
		var url string
		var inner struct {
			URL string `json:"url"`
		}
		switch {
		case p.Source.Data != "":
			m.Images = append(m.Images, model.Image{MediaType: p.Source.MediaType, Base64: p.Source.Data})
		case json.Unmarshal(p.ImageURL, &url) == nil:
			m.Images = append(m.Images, image(url))
		case json.Unmarshal(p.ImageURL, &inner) == nil && inner.URL != "":
			m.Images = append(m.Images, image(inner.URL))
		}
	}
}

func decodeChat(body []byte) (Request, error) {
	var in struct {
		Model    string `json:"model"`
		Messages []struct {
			Role      string          `json:"role"`
			Content   json.RawMessage `json:"content"`
			CallID    string          `json:"tool_call_id"`
			ToolCalls []struct {
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
		MaxTokens           int `json:"max_tokens"`
		MaxCompletionTokens int `json:"max_completion_tokens"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, err
	}
	r := Request{Wire: model.Chat, Model: in.Model, MaxTokens: in.MaxTokens + in.MaxCompletionTokens}
	for _, m := range in.Messages {
		message := model.Message{Role: model.Role(m.Role), CallID: m.CallID}
		fill(&message, parts(m.Content))
		for _, c := range m.ToolCalls {
			message.Calls = append(message.Calls, model.Call{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
		if m.Role == "system" || m.Role == "developer" {
			r.System += message.Text
			continue
		}
		r.Messages = append(r.Messages, message)
	}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, t.Function.Name)
	}
	return r, nil
}

func encodeChat(r Request, reply Reply) script {
	chunk := func(delta object, finish any) event {
		return event{"", object{"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1, "model": r.Model,
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}}}}
	}
	s := script{parts: []event{chunk(object{"role": "assistant", "content": ""}, nil)}}
	for _, t := range reply.Thoughts {
		s.parts = append(s.parts, chunk(object{"reasoning_content": t}, nil))
	}
	for _, t := range reply.Text {
		s.parts = append(s.parts, chunk(object{"content": t}, nil))
	}
	for i, c := range reply.Calls {
		s.parts = append(s.parts, chunk(object{"tool_calls": []object{{
			"index": i, "id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": ""},
		}}}, nil))
		for _, f := range fragments(c.Arguments) {
			s.parts = append(s.parts, chunk(object{"tool_calls": []object{{
				"index": i, "function": object{"arguments": f},
			}}}, nil))
		}
	}
	finish := "stop"
	switch {
	case reply.Stop == model.Truncated:
		finish = "length"
	case reply.Stop == model.Refused:
		finish = "content_filter"
	case len(reply.Calls) > 0:
		finish = "tool_calls"
	}
	s.end = []event{
		chunk(object{}, finish),
		{"", object{"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1, "model": r.Model, "choices": []object{},
			"usage": object{"prompt_tokens": reply.Usage.Input, "completion_tokens": reply.Usage.Output,
				"total_tokens": reply.Usage.Input + reply.Usage.Output}}},
		{"", "[DONE]"},
	}
	return s
}
