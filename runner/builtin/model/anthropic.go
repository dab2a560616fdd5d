package model

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/runner/meta"
)

// anthropic is Anthropic's Messages (https://docs.anthropic.com/en/api/messages-streaming).
type anthropic struct{}

func (anthropic) url(base string) string { return strings.TrimSuffix(base, "/v1") + "/v1/messages" }

func (anthropic) header(h http.Header, key string) {
	h.Set("Anthropic-Version", "2023-06-01")
	if key != "" {
		h.Set("X-Api-Key", key)
	}
}

type anthropicMessage struct {
	Role    string   `json:"role"`
	Content []object `json:"content"`
}

func (anthropic) body(s Server, r Request) any {
	var messages []anthropicMessage
	for _, m := range r.Messages {
		role := "user"
		if m.Role == Assistant {
			role = "assistant"
		}
		blocks := blocksOf(m)
		if len(blocks) == 0 {
			continue
		}
		// The results of all calls of a message must be in one message.
		if last := len(messages) - 1; last >= 0 && messages[last].Role == role {
			messages[last].Content = append(messages[last].Content, blocks...)
		} else {
			messages = append(messages, anthropicMessage{role, blocks})
		}
	}
	cached := object{"type": "ephemeral"}
	if last := len(messages) - 1; last >= 0 {
		blocks := messages[last].Content
		blocks[len(blocks)-1]["cache_control"] = cached // the next request of the turn begins with this one
	}
	if r.MaxTokens == 0 {
		r.MaxTokens = defaultTokens
	}
	body := object{"model": s.Model, "max_tokens": r.MaxTokens, "messages": messages, "stream": true}
	if r.System != "" {
		body["system"] = []object{{"type": "text", "text": r.System, "cache_control": cached}}
	}
	if len(r.Tools) > 0 {
		var tools []object
		for _, t := range r.Tools {
			tools = append(tools, object{"name": t.Name, "description": t.Description, "input_schema": t.Schema})
		}
		body["tools"] = tools
	}
	return body
}

func blocksOf(m Message) []object {
	var blocks []object
	if m.Role == ToolResult {
		text := m.Text
		if m.IsError && strings.TrimSpace(text) == "" { // the server refuses errors without a text
			text = "the tool has failed, without a reason"
		}
		return []object{{"type": "tool_result", "tool_use_id": m.CallID, "content": text, "is_error": m.IsError}}
	}
	for _, t := range m.Thoughts {
		switch {
		case t.Redacted != "":
			blocks = append(blocks, object{"type": "redacted_thinking", "data": t.Redacted})
		case t.Signature != "":
			blocks = append(blocks, object{"type": "thinking", "thinking": t.Text, "signature": t.Signature})
		}
	}
	for _, i := range m.Images {
		blocks = append(blocks, object{"type": "image", "source": object{
			"type": "base64", "media_type": i.MediaType, "data": i.Base64,
		}})
	}
	if strings.TrimSpace(m.Text) != "" { // the server refuses blank texts
		blocks = append(blocks, object{"type": "text", "text": m.Text})
	}
	for _, c := range m.Calls {
		blocks = append(blocks, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": c.object()})
	}
	return blocks
}

func (anthropic) decoder() decoder {
	return &anthropicDecoder{calls: calls{}, thoughts: map[int]*Thought{}}
}

type anthropicDecoder struct {
	text     strings.Builder
	thoughts map[int]*Thought
	order    []int // of thoughts
	calls    calls
	usage    Usage
	stop     Stop
	isEnded  bool
}

type anthropicUsage struct {
	InputTokens              int64 `json:"input_tokens"`
	CacheCreationInputTokens int64 `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int64 `json:"cache_read_input_tokens"`
	OutputTokens             int64 `json:"output_tokens"`
}

type anthropicEvent struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Usage anthropicUsage `json:"usage"`
	} `json:"message"`
	ContentBlock struct {
		Type      string `json:"type"`
		Text      string `json:"text"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
		Data      string `json:"data"`
		ID        string `json:"id"`
		Name      string `json:"name"`
	} `json:"content_block"`
	Delta struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage *anthropicUsage `json:"usage"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

func (d *anthropicDecoder) event(_ string, data []byte, emit func(Delta)) (bool, error) {
	var e anthropicEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return false, errors.New("an event is no JSON of the format")
	}
	switch e.Type {
	case "message_start":
		u := e.Message.Usage
		d.usage = Usage{u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens, u.OutputTokens}
		emit(Delta{Usage: &Usage{d.usage.Input, d.usage.Output}})
	case "content_block_start":
		return false, d.start(e, emit)
	case "content_block_delta":
		return false, d.delta(e, emit)
	case "message_delta":
		if e.Usage != nil {
			d.usage.Output = max(d.usage.Output, e.Usage.OutputTokens)
			emit(Delta{Usage: &Usage{d.usage.Input, d.usage.Output}})
		}
		switch e.Delta.StopReason {
		case "max_tokens", "model_context_window_exceeded":
			d.stop = Truncated
		case "refusal":
			d.stop = Refused
		}
	case "message_stop":
		d.isEnded = true
		return true, nil
	case "error":
		return false, anthropicFailure(e.Error.Type, e.Error.Message)
	}
	return false, nil
}

func anthropicFailure(kind, message string) *Error {
	switch kind {
	case "rate_limit_error":
		return temporary(meta.CodeRateLimited, "the model server limits the rate of requests: %s", message)
	case "overloaded_error", "api_error", "timeout_error":
		return temporary(meta.CodeModelUnavailable, "the model server has failed: %s", message)
	case "not_found_error":
		return failed(meta.CodeModelUnavailable, "the model server does not know the model: %s", message)
	}
	return failed(meta.CodeModelError, "the model server has failed: %s", message)
}

func (d *anthropicDecoder) start(e anthropicEvent, emit func(Delta)) error {
	switch b := e.ContentBlock; b.Type {
	case "text":
		d.addText(b.Text, emit)
	case "thinking", "redacted_thinking":
		if len(d.order) == maxCalls {
			return errCalls
		}
		d.thoughts[e.Index] = &Thought{Text: b.Thinking, Signature: b.Signature, Redacted: b.Data}
		d.order = append(d.order, e.Index)
	case "tool_use":
		call, err := d.calls.at(e.Index)
		if err != nil {
			return err
		}
		call.id, call.name = b.ID, b.Name
	}
	return nil
}

func (d *anthropicDecoder) delta(e anthropicEvent, emit func(Delta)) error {
	switch e.Delta.Type {
	case "text_delta":
		d.addText(e.Delta.Text, emit)
	case "thinking_delta", "signature_delta":
		thought := d.thoughts[e.Index]
		if thought == nil {
			return errors.New("a part of a thought precedes its beginning")
		}
		thought.Text += e.Delta.Thinking
		thought.Signature += e.Delta.Signature
		if e.Delta.Thinking != "" {
			emit(Delta{Thought: e.Delta.Thinking})
		}
	case "input_json_delta":
		call, err := d.calls.at(e.Index)
		if err != nil {
			return err
		}
		return call.add(e.Delta.PartialJSON)
	}
	return nil
}

func (d *anthropicDecoder) addText(text string, emit func(Delta)) {
	if text == "" {
		return
	}
	d.text.WriteString(text)
	emit(Delta{Text: text})
}

func (d *anthropicDecoder) reply() (Reply, error) {
	if !d.isEnded {
		return Reply{}, errCut
	}
	m := Message{Role: Assistant, Text: d.text.String(), Calls: d.calls.all()}
	for _, index := range d.order {
		m.Thoughts = append(m.Thoughts, *d.thoughts[index])
	}
	return Reply{m, d.stop, d.usage}, nil
}
