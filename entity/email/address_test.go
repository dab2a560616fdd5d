package email_test

import (
	"net/mail"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/entity/entitytest"
)

func repeatA(n int) string { return strings.Repeat("a", n) }

// addresses maps texts to a part of the error message of Check; it is empty for valid addresses.
var addresses = map[string]string{
	"alice@example.com":       "",
	"a.b+c_d@mail.example":    "",
	"!#$%&'*/=?^`{|}~-@x.io":  "",
	"a@localhost":             "",
	"a@1.2.3":                 "",
	"a@xn--bcher-kva.example": "",
	"a@b--c.example":          "",

	repeatA(64) + "@example.com": "",
	repeatA(65) + "@example.com": "64",

	"a@" + repeatA(63) + ".com":    "",
	"a@" + repeatA(64) + ".com":    "63",
	"a@example." + repeatA(64):     "63",
	"a@" + repeatA(64) + "@" + "b": "domain",

	repeatA(64) + "@" + repeatA(63) + "." + repeatA(63) + "." + repeatA(61): "",
	repeatA(64) + "@" + repeatA(63) + "." + repeatA(63) + "." + repeatA(62): "254",
	repeatA(60) + "@" + strings.Repeat("a.", 96) + "a":                      "",
	"a@" + strings.Repeat("a.", 10_000) + "a":                               "254",
	"m\u00fcller@example.org":                                               "xn--",
	"mu\u0308ller@example.org":                                              "xn--",
	"a@b\u00fccher.example":                                                 "xn--",
	"a@\u212aelvin.example":                                                 "xn--",
	"al\xffce@example.com":                                                  "xn--",
	"a@example\uff0ecom":                                                    "xn--",
	"":                                                                      "not an address",
	"alice":                                                                 "not an address",
	"@example.com":                                                          "not an address",
	".a@example.com":                                                        "not an address",
	"a.@example.com":                                                        "not an address",
	"a..b@example.com":                                                      "not an address",
	"a lice@example.com":                                                    "not an address",
	`"a"@example.com`:                                                       "not an address",
	`"a@b"@example.com`:                                                     "not an address",
	"<alice@example.com>":                                                   "not an address",
	"A <alice@example.com>":                                                 "not an address",
	"a(b)@example.com":                                                      "not an address",
	"alice@":                                                                "domain",
	"a@b@c":                                                                 "domain",
	"a@b.com, c@d.com":                                                      "domain",
	"alice@example.com ":                                                    "domain",
	"alice@exam\nple.com":                                                   "domain",
	"alice@example.com\x00":                                                 "domain",
	"a@-x.org":                                                              "domain",
	"a@x-.org":                                                              "domain",
	"a@x.-org":                                                              "domain",
	"a@x_y.org":                                                             "domain",
	"a@x..org":                                                              "domain",
	"a@.org":                                                                "domain",
	"a@x.org.":                                                              "domain",
	"a@[127.0.0.1]":                                                         "domain",
	"a@[ipv6:::1]":                                                          "domain",
	"a@x.org:25":                                                            "domain",
	"Alice@example.com":                                                     "lower-case",
	"alice@EXAMPLE.com":                                                     "lower-case",
}

func TestCheck(t *testing.T) {
	for address, want := range addresses {
		err := email.Check(address)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", address, err)
		case want == "":
		case entitytest.Code(err) != entity.InvalidRequest || !strings.HasPrefix(err.Message, "email ") || !strings.Contains(err.Message, want):
			t.Errorf("%q: %v, want email and %q", address, err, want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{
		"Alice@EXAMPLE.com": "alice@example.com", "alice@example.com": "alice@example.com", "A@XN--BCHER-KVA.example": "a@xn--bcher-kva.example",
		"\u212aelvin@example.com": "", "al\u0130ce@example.com": "", "A@b@c": "", "": "",
	} {
		got, err := email.Canonical(text)
		if got != want || (want == "") != (entitytest.Code(err) == entity.InvalidRequest) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// FuzzCheck checks that Canonical accepts only addresses that net/mail parses, and that its results are canonical.
func FuzzCheck(f *testing.F) {
	for address := range addresses {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, text string) {
		address, err := email.Canonical(text)
		if err != nil {
			if email.Check(text) == nil {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		parsed, err := mail.ParseAddress(address)
		if err != nil || parsed.Address != address || parsed.Name != "" || !strings.EqualFold(address, text) {
			t.Fatalf("%q for %q: %v, %v", address, text, parsed, err)
		}
		if again, err := email.Canonical(address); again != address || err != nil || email.Check(address) != nil {
			t.Fatalf("%q: %q, %v", address, again, err)
		}
	})
}
