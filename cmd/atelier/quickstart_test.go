package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestQuote has a shell read the quoted words.
func TestQuote(t *testing.T) {
	for _, word := range []string{"", "data", "/srv/my data", "it's", `a"b$c\d`, "$(id)", "*", "~", "-n", "a\nb", "Ünï"} {
		got, err := exec.Command("sh", "-c", "printf %s. "+quote(word)).Output()
		if err != nil || string(got) != word+"." {
			t.Errorf("%q: %q, %v", word, got, err)
		}
	}
	text := trial{dir: "/srv/my data", session: "ses_1"}.text()
	if !strings.Contains(text, "  Data     /srv/my data\n") || !strings.Contains(text, "--data='/srv/my data' ") || strings.Contains(text, "--data=/srv") {
		t.Error(text)
	}
}
