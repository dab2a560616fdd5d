package builtin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/runner/builtin/model"
)

// exchange returns a question, a call, its result and an answer.
func exchange(n, size int) []model.Message {
	id := fmt.Sprint(n)
	return []model.Message{
		{Role: model.User, Text: "question " + id},
		{Role: model.Assistant, Calls: []model.Call{{ID: id, Name: "shell", Arguments: "{}"}}},
		{Role: model.ToolResult, CallID: id, Text: strings.Repeat("x", size)},
		{Role: model.Assistant, Text: "answer " + id},
	}
}

func TestFit(t *testing.T) {
	for name, test := range map[string]struct {
		exchanges, size          int
		first                    string
		isShortened, isUnchanged bool
	}{
		"a short conversation is unchanged":    {3, 100, "question 0", false, true},
		"old results are left out":             {20, 50_000, "question 0", true, false},
		"old exchanges are left out":           {2000, 400, "question", false, false},
		"one that is too long is not cut":      {1, 2 * maxConversation, "question 0", false, true},
		"results that are recent remain whole": {2, 250_000, "question 1", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var all []model.Message
			for i := range test.exchanges {
				all = append(all, exchange(i, test.size)...)
			}
			got := fit(all)
			size := 0
			for _, m := range got {
				size += sizeOf(m)
			}
			if !strings.HasPrefix(got[0].Text, test.first) || got[0].Role != model.User || size > maxConversation && test.exchanges > 1 {
				t.Errorf("%d messages of %d bytes, the first is %+v", len(got), size, got[0])
			}
			if test.isShortened != (len(got) > 2 && got[2].Text == leftOut) || test.isUnchanged && len(got) != len(all) {
				t.Errorf("%d messages of %d, %.40q", len(got), len(all), got[2].Text)
			}
			if len(all[2].Text) != test.size {
				t.Error("the conversation itself was changed")
			}
		})
	}
}

func TestFitBeginsWithTheUser(t *testing.T) {
	if got := fit(exchange(1, 10)[1:]); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := fit(append(exchange(1, 10)[2:], exchange(2, 10)...)); len(got) != 4 || got[0].Text != "question 2" {
		t.Errorf("%+v", got)
	}
}

func TestFitKeepsTheLastImages(t *testing.T) {
	var all []model.Message
	for range 2 * maxImages {
		all = append(all, model.Message{Role: model.User, Images: make([]model.Image, 1)})
	}
	got := fit(all)
	if len(got[0].Images) != 0 || len(got[maxImages].Images) != 1 || len(all[0].Images) != 1 {
		t.Error("the images are not the last")
	}
}

// TestFitBoundsTheBytesOfImages expects that requests stay within the limit of the gateway, and that no message is without content.
func TestFitBoundsTheBytesOfImages(t *testing.T) {
	large := model.Image{MediaType: "image/png", Base64: strings.Repeat("x", 6<<20)}
	var all []model.Message
	for range maxImages {
		all = append(all, model.Message{Role: model.User, Images: []model.Image{large}})
	}
	got, size, images := fit(all), 0, 0
	for _, m := range got {
		images += len(m.Images)
		for _, i := range m.Images {
			size += len(i.Base64)
		}
		if m.Text == "" && len(m.Images) == 0 {
			t.Error("a message has no content")
		}
	}
	if size > 24<<20 || images != 4 || len(got[maxImages-1].Images) != 1 {
		t.Errorf("%d images have %d bytes", images, size)
	}
	many := fit([]model.Message{{Role: model.User, Text: "Look", Images: make([]model.Image, maxImages+1)}})
	if len(many[0].Images) != maxImages {
		t.Errorf("%d images of one message", len(many[0].Images))
	}
}

func TestToolName(t *testing.T) {
	for want, names := range map[string][2]string{
		"ask":                          {"atelier", "ask"},
		"my_server__read_file":         {"my server", "read.file"},
		strings.Repeat("x", 62) + "__": {strings.Repeat("x", 62), "tool"},
	} {
		if got := toolName(names[0], names[1]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCleanTitle(t *testing.T) {
	for text, want := range map[string]string{
		"\"Fix the tests\".\nIt is": "Fix the tests", "": "", strings.Repeat("long ", 30): "", "**Bold**": "Bold",
	} {
		if got := cleanTitle(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
