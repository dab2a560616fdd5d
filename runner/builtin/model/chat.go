package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/runner/meta"
)

// chat is OpenAI's Chat Completions (https://platform.openai.com/docs/api-reference/chat) with the extensions for thoughts
// that other servers have: reasoning_content (DeepSeek, vLLM, llama.cpp) and reasoning (OpenRouter, Ollama).
type chat struct{}

func (chat) url(base string) string { return base + "/chat/completions" }

func (chat) header(h http.Header, key string) { bearer(h, key) }

func bearer(h http.Header, key string) {
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	Index    int    `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type object = map[string]any

func (chat) body(s Server, r Request) any {
	var messages []chatMessage
	if r.System != "" {
		messages = append(messages, chatMessage{Role: "system", Content: r.System})
	}
	for _, m := range r.Messages {
		messages = append(messages, chatMessageOf(m))
	}
	body := object{
		"model": s.Model, "messages": messages, "stream": true, "stream_options": object{"include_usage": true},
	}
	if len(r.Tools) > 0 {
		var tools []object
		for _, t := range r.Tools {
			tools = append(tools, object{"type": "function", "function": object{
				"name": t.Name, "description": t.Description, "parameters": t.Schema,
			}})
		}
		body["tools"] = tools
	}
	if r.MaxTokens > 0 {
		// OpenAI refuses the old name for its newer models, and most other servers know only that.
		name := "max_tokens"
		if s.BaseURL == "" || strings.HasPrefix(s.BaseURL, openAIURL) {
			name = "max_completion_tokens"
		}
		body[name] = r.MaxTokens
	}
	return body
}

func chatMessageOf(m Message) chatMessage {
	switch m.Role {
	case ToolResult:
		return chatMessage{Role: "tool", Content: m.Text, ToolCallID: m.CallID}
	case Assistant:
		out := chatMessage{Role: "assistant"}
		if m.Text != "" || len(m.Calls) == 0 {
			out.Content = m.Text
		}
		for _, c := range m.Calls {
			call := chatCall{ID: c.ID, Type: "function"}
			call.Function.Name, call.Function.Arguments = c.Name, string(c.object())
			out.ToolCalls = append(out.ToolCalls, call)
		}
		return out
	}
	if len(m.Images) == 0 {
		return chatMessage{Role: "user", Content: m.Text}
	}
	var parts []object
	if m.Text != "" {
		parts = append(parts, object{"type": "text", "text": m.Text})
	}
	for _, i := range m.Images {
		parts = append(parts, object{"type": "image_url", "image_url": object{"url": dataURL(i)}})
	}
	return chatMessage{Role: "user", Content: parts}
}

func dataURL(i Image) string { return "data:" + i.MediaType + ";base64," + i.Base64 }

func (chat) decoder() decoder { return &chatDecoder{calls: calls{}} }

type chatDecoder struct {
	text  strings.Builder
	calls calls
	// shift is added to the indices of the server.
	shift   int
	usage   Usage
	stop    Stop
	isEnded bool
}

type chatChunk struct {
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Content          string     `json:"content"`
			Refusal          string     `json:"refusal"`
			Reasoning        string     `json:"reasoning"`
			ReasoningContent string     `json:"reasoning_content"`
			ToolCalls        []chatCall `json:"tool_calls"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     int64 `json:"prompt_tokens"`
		CompletionTokens int64 `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (d *chatDecoder) event(_ string, data []byte, emit func(Delta)) (bool, error) {
	if string(data) == "[DONE]" {
		return true, nil
	}
	var chunk chatChunk
	if err := json.Unmarshal(data, &chunk); err != nil {
		return false, errors.New("an event is no JSON of the format")
	}
	if chunk.Error != nil {
		return false, temporary(meta.CodeModelError, "the model server has failed: %s", chunk.Error.Message)
	}
	if u := chunk.Usage; u != nil {
		d.usage = Usage{u.PromptTokens, u.CompletionTokens}
		emit(Delta{Usage: &Usage{d.usage.Input, d.usage.Output}})
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue
		}
		delta := choice.Delta
		if thought := cmp.Or(delta.ReasoningContent, delta.Reasoning); thought != "" {
			emit(Delta{Thought: thought})
		}
		if text := delta.Content + delta.Refusal; text != "" {
			d.text.WriteString(text)
			emit(Delta{Text: text})
		}
		if delta.Refusal != "" {
			d.stop = Refused
		}
		for _, c := range delta.ToolCalls {
			if err := d.call(c); err != nil {
				return false, err
			}
		}
		switch choice.FinishReason {
		case "":
			continue
		case "length":
			d.stop = Truncated
		case "content_filter":
			d.stop = Refused
		}
		d.isEnded = true
	}
	return false, nil
}

func (d *chatDecoder) call(c chatCall) error {
	// Some servers give all calls the same index. A name with another id begins a further call; an id alone does not, because others
	// send a new one with each part of a call.
	if known := d.calls[d.shift+c.Index]; known != nil && known.id != "" && c.ID != "" && known.id != c.ID && c.Function.Name != "" {
		d.shift = len(d.calls) - c.Index
	}
	call, err := d.calls.at(d.shift + c.Index)
	if err != nil {
		return err
	}
	call.id = cmp.Or(call.id, c.ID)
	call.name = cmp.Or(call.name, c.Function.Name)
	return call.add(c.Function.Arguments)
}

func (d *chatDecoder) reply() (Reply, error) {
	if !d.isEnded {
		return Reply{}, errCut
	}
	return Reply{Message{Role: Assistant, Text: d.text.String(), Calls: d.calls.all()}, d.stop, d.usage}, nil
}
