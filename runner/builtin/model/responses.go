package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/runner/meta"
)

// responses is OpenAI's Responses (https://platform.openai.com/docs/api-reference/responses). Nothing is stored on the server:
// each request has the whole conversation.
type responses struct{}

func (responses) url(base string) string { return base + "/responses" }

func (responses) header(h http.Header, key string) { bearer(h, key) }

func (responses) body(s Server, r Request) any {
	input := []any{}
	for _, m := range r.Messages {
		input = append(input, itemsOf(m)...)
	}
	body := object{"model": s.Model, "input": input, "stream": true, "store": false}
	if r.System != "" {
		body["instructions"] = r.System
	}
	if len(r.Tools) > 0 {
		var tools []object
		for _, t := range r.Tools {
			tools = append(tools, object{
				"type": "function", "name": t.Name, "description": t.Description, "parameters": t.Schema, "strict": false,
			})
		}
		body["tools"] = tools
	}
	if r.MaxTokens > 0 {
		body["max_output_tokens"] = r.MaxTokens
	}
	return body
}

func itemsOf(m Message) []any {
	var items []any
	switch m.Role {
	case ToolResult:
		return []any{object{"type": "function_call_output", "call_id": m.CallID, "output": m.Text}}
	case Assistant:
		for _, t := range m.Thoughts {
			if t.Raw != "" {
				items = append(items, json.RawMessage(t.Raw))
			}
		}
		if m.Text != "" {
			items = append(items, object{"type": "message", "role": "assistant", "content": []object{
				{"type": "output_text", "text": m.Text},
			}})
		}
		for _, c := range m.Calls {
			items = append(items, object{"type": "function_call", "call_id": c.ID, "name": c.Name, "arguments": string(c.object())})
		}
		return items
	}
	var content []object
	if m.Text != "" {
		content = append(content, object{"type": "input_text", "text": m.Text})
	}
	for _, i := range m.Images {
		content = append(content, object{"type": "input_image", "image_url": dataURL(i)})
	}
	return []any{object{"type": "message", "role": "user", "content": content}}
}

func (responses) decoder() decoder { return &responsesDecoder{calls: calls{}} }

type responsesDecoder struct {
	text     strings.Builder
	thoughts []Thought
	calls    calls
	usage    Usage
	stop     Stop
	isEnded  bool
}

type responsesEvent struct {
	Type        string          `json:"type"`
	Delta       string          `json:"delta"`
	OutputIndex int             `json:"output_index"`
	Item        json.RawMessage `json:"item"`
	Message     string          `json:"message"`
	Code        string          `json:"code"`
	Response    struct {
		Usage *struct {
			InputTokens  int64 `json:"input_tokens"`
			OutputTokens int64 `json:"output_tokens"`
		} `json:"usage"`
		Error *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
		IncompleteDetails struct {
			Reason string `json:"reason"`
		} `json:"incomplete_details"`
	} `json:"response"`
}

func (d *responsesDecoder) event(name string, data []byte, emit func(Delta)) (bool, error) {
	if string(data) == "[DONE]" {
		return true, nil
	}
	var e responsesEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return false, errors.New("an event is no JSON of the format")
	}
	switch cmp.Or(e.Type, name) {
	case "response.output_text.delta", "response.refusal.delta":
		d.text.WriteString(e.Delta)
		emit(Delta{Text: e.Delta})
		if strings.Contains(e.Type, "refusal") {
			d.stop = Refused
		}
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		emit(Delta{Thought: e.Delta})
	case "response.function_call_arguments.delta":
		call, err := d.calls.at(e.OutputIndex)
		if err != nil {
			return false, err
		}
		return false, call.add(e.Delta)
	case "response.output_item.added":
		return false, d.item(e, false)
	case "response.output_item.done":
		return false, d.item(e, true)
	case "response.completed", "response.incomplete":
		return true, d.end(e, emit)
	case "response.failed":
		code, message := "", "without a reason"
		if e.Response.Error != nil {
			code, message = e.Response.Error.Code, e.Response.Error.Message
		}
		return false, responsesFailure(code, message)
	case "error":
		return false, responsesFailure(e.Code, e.Message)
	}
	return false, nil
}

func responsesFailure(code, message string) *Error {
	switch code {
	case "rate_limit_exceeded":
		return temporary(meta.CodeRateLimited, "the model server limits the rate of requests: %s", message)
	case "server_error", "server_is_overloaded", "slow_down":
		return temporary(meta.CodeModelUnavailable, "the model server has failed: %s", message)
	case "model_not_found":
		return failed(meta.CodeModelUnavailable, "the model server does not know the model: %s", message)
	}
	return failed(meta.CodeModelError, "the model server has failed: %s", message)
}

// item reads an item when it begins, and again when it is complete.
func (d *responsesDecoder) item(e responsesEvent, isDone bool) error {
	var item struct {
		Type             string `json:"type"`
		CallID           string `json:"call_id"`
		Name             string `json:"name"`
		Arguments        string `json:"arguments"`
		EncryptedContent string `json:"encrypted_content"`
	}
	if err := json.Unmarshal(e.Item, &item); err != nil {
		return errors.New("an item is no JSON of the format")
	}
	switch item.Type {
	case "function_call":
		call, err := d.calls.at(e.OutputIndex)
		if err != nil {
			return err
		}
		call.id, call.name = cmp.Or(item.CallID, call.id), cmp.Or(item.Name, call.name)
		if isDone && item.Arguments != "" {
			call.arguments.Reset()
			return call.add(item.Arguments)
		}
	case "reasoning":
		// Without encrypted content the item is only a reference to data that the server has not stored.
		if isDone && item.EncryptedContent != "" {
			d.thoughts = append(d.thoughts, Thought{Raw: string(e.Item)})
		}
	}
	return nil
}

func (d *responsesDecoder) end(e responsesEvent, emit func(Delta)) error {
	d.isEnded = true
	if u := e.Response.Usage; u != nil {
		d.usage = Usage{u.InputTokens, u.OutputTokens}
		emit(Delta{Usage: &Usage{d.usage.Input, d.usage.Output}})
	}
	switch e.Response.IncompleteDetails.Reason {
	case "max_output_tokens":
		d.stop = Truncated
	case "content_filter":
		d.stop = Refused
	}
	return nil
}

func (d *responsesDecoder) reply() (Reply, error) {
	if !d.isEnded {
		return Reply{}, errCut
	}
	return Reply{Message{Role: Assistant, Text: d.text.String(), Thoughts: d.thoughts, Calls: d.calls.all()}, d.stop, d.usage}, nil
}
