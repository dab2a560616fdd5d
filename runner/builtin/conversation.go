package builtin

import (
	"strings"

	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/meta"
)

const (
	// maxConversation bounds a conversation in bytes of text: about 100,000 tokens, which most models read.
	maxConversation = 400 << 10
	// recent is the number of the last messages that keep their whole results.
	recent = 10
	// longResult is the greatest length of an old result that is not left out first.
	longResult = 500
	// imageSize stands for the tokens of an image.
	imageSize = 6 << 10
	maxImages = 16
	// maxImageBytes bounds the images of a request, as base64. Servers refuse requests of more than about 32 MB.
	maxImageBytes = 24 << 20
)

const (
	leftOut      = "[this old result is left out]"
	leftOutImage = "[an old image is left out]"
)

// conversationOf returns the conversation of earlier processes. The results of tools become texts, because a result needs its
// call, which is not known.
func conversationOf(history []meta.Entry) []model.Message {
	var all []model.Message
	for _, entry := range history {
		if strings.TrimSpace(entry.Text) == "" {
			continue
		}
		m := model.Message{Role: model.User, Text: entry.Text}
		switch entry.Role {
		case meta.RoleAssistant:
			m.Role = model.Assistant
		case meta.RoleTool:
			m.Text = "[Record of an earlier tool call]\n" + bounded(entry.Text)
		}
		all = append(all, m)
	}
	return all
}

// fit returns a conversation that is within the bounds. It first leaves out long results of tools that are old, and then the
// oldest messages. It never separates calls from their results: a conversation begins with a message of the user.
func fit(all []model.Message) []model.Message {
	out := append([]model.Message{}, all...)
	for len(out) > 0 && out[0].Role != model.User {
		out = out[1:] // a history that begins in the middle
	}
	dropImages(out)
	size := 0
	for _, m := range out {
		size += sizeOf(m)
	}
	for i := 0; i < len(out)-recent && size > maxConversation; i++ {
		if out[i].Role == model.ToolResult && len(out[i].Text) > longResult {
			size -= len(out[i].Text) - len(leftOut)
			out[i].Text = leftOut
		}
	}
	for size > maxConversation {
		next := nextQuestion(out)
		if next == 0 {
			break // one exchange that is too long: the server decides
		}
		for _, m := range out[:next] {
			size -= sizeOf(m)
		}
		out = out[next:]
	}
	return out
}

// nextQuestion returns the index of the second message of the user's, or 0.
func nextQuestion(all []model.Message) int {
	for i := 1; i < len(all); i++ {
		if all[i].Role == model.User {
			return i
		}
	}
	return 0
}

// dropImages leaves out all images except the last. A message that loses an image says so, because servers
// refuse messages without content.
func dropImages(all []model.Message) {
	n, size := 0, 0
	for i := len(all) - 1; i >= 0; i-- {
		images := all[i].Images
		first := len(images)
		for first > 0 && n < maxImages && size+len(images[first-1].Base64) <= maxImageBytes {
			first--
			n, size = n+1, size+len(images[first].Base64)
		}
		if first > 0 {
			n = maxImages // all images before are older
			all[i].Images, all[i].Text = images[first:], strings.TrimSpace(all[i].Text+"\n\n"+leftOutImage)
		}
	}
}

func sizeOf(m model.Message) int {
	size := len(m.Text) + imageSize*len(m.Images)
	for _, c := range m.Calls {
		size += len(c.Name) + len(c.Arguments)
	}
	for _, t := range m.Thoughts {
		size += len(t.Text) + len(t.Redacted) + len(t.Raw)
	}
	return size
}
