package builtin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/meta"
)

// An input is a content block with its author.
type input struct {
	meta.Input
	// text is empty for attachments.
	text       string
	attachment string // the description of an attachment for the model
	images     []model.Image
}

// decodeMeta reads a value of _meta. It returns the zero value if there is none.
func decodeMeta[T any](values map[string]any, key string) (T, error) {
	var value T
	found, ok := values[key]
	if !ok || found == nil {
		return value, nil
	}
	text, err := json.Marshal(found)
	if err == nil {
		err = json.Unmarshal(text, &value)
	}
	if err != nil {
		return value, fmt.Errorf("_meta[%q] is invalid: %w", key, err)
	}
	return value, nil
}

// readInputs returns the inputs of a prompt. Without meta.Inputs, all blocks are prompts of a user.
func (s *session) readInputs(blocks []acp.ContentBlock, values map[string]any) ([]input, error) {
	about, err := decodeMeta[[]meta.Input](values, meta.Inputs)
	if err != nil {
		return nil, err
	}
	if len(about) > 0 && len(about) != len(blocks) {
		return nil, fmt.Errorf("_meta[%q] has %d entries for %d content blocks", meta.Inputs, len(about), len(blocks))
	}
	inputs := make([]input, 0, len(blocks))
	for i, block := range blocks {
		in := input{Input: meta.Input{Kind: meta.KindPrompt, Sender: meta.Sender{Kind: meta.SenderUser}}}
		if len(about) > 0 {
			in.Input = about[i]
		}
		switch in.Kind {
		case meta.KindPrompt, meta.KindMessage, meta.KindNote, meta.KindAnswer:
		default:
			return nil, fmt.Errorf("_meta[%q] has the unknown kind %q", meta.Inputs, in.Kind)
		}
		if err := in.read(block, s); err != nil {
			return nil, fmt.Errorf("content block %d: %w", i, err)
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}

func (in *input) read(block acp.ContentBlock, s *session) error {
	switch {
	case block.Text != nil:
		in.text = block.Text.Text
	case block.Image != nil:
		in.images = []model.Image{{MediaType: block.Image.MimeType, Base64: block.Image.Data}}
	case block.Resource != nil && block.Resource.Resource.TextResourceContents != nil:
		embedded := block.Resource.Resource.TextResourceContents
		in.attachment = fmt.Sprintf("Attached: %s\n%s", embedded.Uri, embedded.Text)
	case block.Resource != nil && block.Resource.Resource.BlobResourceContents != nil:
		in.attachment = "Attached, and not readable as text: " + block.Resource.Resource.BlobResourceContents.Uri
	case block.ResourceLink != nil:
		in.link(block.ResourceLink, s)
	default:
		return fmt.Errorf("its type is not supported")
	}
	return nil
}

// link reads an attachment by its address. Images are for the model, if the session may read files; for other files it gets the path and
// can read them.
func (in *input) link(link *acp.ContentBlockResourceLink, s *session) {
	name := link.Uri
	if at, err := url.Parse(link.Uri); err == nil && at.Scheme == "file" {
		name = at.Path
	}
	in.attachment = fmt.Sprintf("Attached file: %s", name)
	if link.MimeType == nil || !isPicture(*link.MimeType) || s.checkTool("read_file") != nil {
		return
	}
	if content, err := s.drive.Image(name); err == nil {
		encoded := base64.StdEncoding.EncodeToString(content)
		in.images = []model.Image{{MediaType: *link.MimeType, Base64: encoded}}
	}
}

// isPicture reports whether models read images of a type.
func isPicture(mediaType string) bool {
	switch mediaType {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return true
	}
	return false
}

// continues reports whether the input asks for the rest of a turn that was cut off.
func (in input) continues() bool {
	return in.Sender.Kind == meta.SenderSystem && in.text == meta.Continue
}

// forModel returns the input as a part of a message for a model, which names its author.
func (in input) forModel() string {
	text := in.text
	if text == "" {
		text = in.attachment
	}
	var from string
	switch in.Sender.Kind {
	case meta.SenderSession:
		from = "session " + in.Sender.SessionID
	case meta.SenderApp:
		from = "the app " + in.Sender.AppID
	case meta.SenderSystem:
		from = "the system"
	}
	switch {
	case text == "":
		return ""
	case in.Kind == meta.KindNote && from != "":
		return fmt.Sprintf("[Note from %s, for your information]\n%s", from, text)
	case in.Kind == meta.KindNote:
		return "[Note, for your information]\n" + text
	case in.Kind == meta.KindAnswer:
		return "[Answer to your question]\n" + text
	case from != "":
		return fmt.Sprintf("[From %s]\n%s", from, text)
	}
	return text
}

// messageOf returns inputs as one message for a model.
func messageOf(inputs []input) model.Message {
	m := model.Message{Role: model.User}
	var texts []string
	for _, in := range inputs {
		if text := in.forModel(); text != "" {
			texts = append(texts, text)
		}
		m.Images = append(m.Images, in.images...)
	}
	m.Text = strings.Join(texts, "\n\n")
	return m
}
