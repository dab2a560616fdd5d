package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/http/browser"
)

func TestPublicURL(t *testing.T) {
	for _, of := range []struct {
		set, listen, want string
		local             bool
	}{
		{"", "127.0.0.1:8080", "http://127.0.0.1:8080", false},
		{"", "[::1]:80", "http://[::1]:80", false},
		{"", "localhost:1", "http://localhost:1", false},
		{"", ":8080", "http://localhost:8080", true},
		{"", "0.0.0.0:8080", "http://localhost:8080", true},
		{"", "192.0.2.1:8080", "http://localhost:8080", true},
		{"https://a.example.com/", ":8080", "https://a.example.com", false},
		{"http://localhost:9", ":8080", "http://localhost:9", false},
	} {
		settings := publicSettings{PublicURL: of.set}
		got, local, err := settings.publicURL(of.listen)
		if err != nil || settings.check() != nil || got.String() != of.want || local != of.local {
			t.Errorf("%q over %q: %v %v %v", of.set, of.listen, got, local, err)
		}
	}
}

func TestAppResponse(t *testing.T) {
	for argument, want := range map[string]time.Duration{"--app-ready=20s": 2 * time.Minute, "--app-response=5m": 5 * time.Minute} {
		settings, err := parse(t, argument)
		if err != nil {
			t.Fatal(err)
		}
		o, err := settings.options(slog.New(slog.DiscardHandler), nil)
		if err != nil || o.Edge.Limits.HeaderTime != want {
			t.Errorf("%s: %v, %v", argument, o.Edge.Limits.HeaderTime, err)
		}
	}
	if _, err := parse(t, "--app-response=0"); err == nil {
		t.Error("no time is accepted")
	}
}

func TestTrustedProxies(t *testing.T) {
	got, err := parse(t, "--trusted-proxies=10.1.2.3/8,fd00::1,192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::1/128"), netip.MustParsePrefix("192.0.2.1/32"),
	}
	if !slices.Equal(got.proxies(), want) {
		t.Errorf("%v", got.proxies())
	}
}

func TestSecretFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for content, want := range map[string]string{
		"hunter2\n": "hunter2", "with space \r\n": "with space ", "": "", "\n": "", "two\nlines": "",
		strings.Repeat("x", longestSecret+1): "",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readSecret("smtp-password-file", path)
		var usage coded
		switch {
		case got != want:
			t.Errorf("secret of %.20q: %.20q", content, got)
		case want == "" && (!errors.As(err, &usage) || usage.code != exitConfig):
			t.Errorf("%.20q: %v", content, err)
		case err != nil && strings.Contains(err.Error(), "two"):
			t.Errorf("the error has the secret: %v", err)
		}
	}
	if got, err := readSecret("smtp-password-file", ""); got != "" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := readSecret("smtp-password-file", path+".gone"); err == nil || !strings.Contains(err.Error(), "smtp-password-file") {
		t.Error(err)
	}
}

func TestValidSettings(t *testing.T) {
	for _, arguments := range [][]string{
		{"--smtp-address=localhost:25", "--smtp-tls=none", "--smtp-from=atelier@example.org"},
		{"--smtp-address=mail.example.org:587", "--smtp-from=Atelier <a@example.org>", "--smtp-user=a", "--smtp-password-file=f"},
		{"--oidc-issuer=https://id.example.org", "--oidc-client-id=a", "--oidc-client-secret-file=f"},
		{"--backup-url=s3://bucket?region=eu-central-1"}, {"--backup-url=file:///srv/backups"},
		{"--address-rate=0", "--address-burst=7"},
	} {
		if _, err := parse(t, arguments...); err != nil {
			t.Errorf("%v: %v", arguments, err)
		}
	}
}

func TestOptionsOfMailAndProvider(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	settings, err := parse(t, "--smtp-address=mail.example.org:587", "--smtp-from=a@example.org", "--smtp-user=a",
		"--smtp-password-file="+secret, "--oidc-issuer=https://id.example.org/realm", "--oidc-client-id=atelier",
		"--oidc-client-secret-file="+secret, "--public-url=https://a.example.com", "--trusted-proxies=10.0.0.0/8",
		"--address-rate=0", "--backup-url=file:///srv/backups")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	o, err := settings.options(log, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := browser.OIDC{Issuer: "https://id.example.org/realm", ClientID: "atelier", ClientSecret: "hunter2", Name: "id.example.org"}
	if o.HTTP.Mail == nil || o.HTTP.OIDC == nil || *o.HTTP.OIDC != want || o.HTTP.PublicURL.String() != "https://a.example.com" ||
		len(o.HTTP.TrustedProxies) != 1 || o.HTTP.Limits.AddressRate != -1 || o.BackupURL != "file:///srv/backups" {
		t.Errorf("%+v", o.HTTP)
	}
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	if _, err := settings.options(log, nil); err == nil || !strings.Contains(err.Error(), "smtp-password-file") {
		t.Errorf("without the file: %v", err)
	}
	if settings, err = parse(t); err != nil {
		t.Fatal(err)
	}
	if o, err := settings.options(log, nil); err != nil || o.HTTP.Mail != nil || o.HTTP.OIDC != nil {
		t.Errorf("unset: %+v, %v", o.HTTP, err)
	}
}

// TestSettingsAsWritten reads texts that YAML takes for numbers, and empty lists.
func TestSettingsAsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "atelier.yaml")
	content := "\ufeffoidc-issuer: https://id.example.org\noidc-client-id: 0123456\noidc-client-secret-file: /s\noidc-name: 1.10\nrate: 10\n" +
		"generated-trees: []\ntrusted-proxies: []\nresolvers: []\nedge-addresses: []\ncomputer-ports: []\ncertificate: []\napp-processors: 0.50\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := parse(t, "--config="+path)
	if err != nil {
		t.Fatal(err)
	}
	if got.OIDCClientID != "0123456" || got.OIDCName != "1.10" || got.Rate != 10 || got.AppProcessors != 0.5 {
		t.Errorf("%q, %q, %d, %v", got.OIDCClientID, got.OIDCName, got.Rate, got.AppProcessors)
	}
	if got.GeneratedTrees == nil || len(got.GeneratedTrees)+len(got.proxies())+len(got.Resolvers)+len(got.EdgeAddresses)+len(got.ComputerPorts)+len(got.Certificates) > 0 {
		t.Errorf("%#v", got)
	}
}

func TestDurationsInJSONHaveUnits(t *testing.T) {
	var out bytes.Buffer
	log, err := newLog(&out, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("request", "duration", 1500*time.Microsecond)
	if !strings.Contains(out.String(), `"duration":"1.5ms"`) {
		t.Errorf("%s", &out)
	}
}

func TestHTTPSSettings(t *testing.T) {
	for arguments, want := range map[string]string{
		"--https-listen=:443 --public-url=https://a.example.com --acme-email=ops@example.com":        "",
		"--https-listen=:443 --public-url=https://a.example.com --certificate=c --certificate-key=k": "",
		"--https-listen=:443 --acme-email=ops@example.com":                                           "public-url",
		"--https-listen=443 --public-url=https://a.example.com --acme-email=ops@example.com":         "https-listen",
		"--https-listen=:443 --public-url=https://a.example.com":                                     "it needs certificates",
		"--https-listen=:443 --public-url=https://a.example.com --certificate=c":                     "certificate-key",
		"--acme-email=ops@example.com":                                                               "https-listen",
		"--acme-directory=http://ca.example.com":                                                     "acme-directory",
		"--quickstart --https-listen=:443 --public-url=https://a.example.com --acme-email=a@b":       "quickstart",
		"--metrics-listen=127.0.0.1:9090":                                                            "",
		"--metrics-listen=unix:/run/atelier/metrics.sock":                                            "",
		"--metrics-listen=unix:":                                                                     "metrics-listen",
		"--metrics-listen=9090":                                                                      "metrics-listen",
		"--hosts=atelier.lan:8080":                                                                   "hosts",
		"--hosts=https://atelier.lan":                                                                "hosts",
		"--hosts=*.lan":                                                                              "hosts",
		"--hosts=atelier.lan,,x":                                                                     "hosts",
		"--hosts=atelier.lan,Atelier,atelier_1":                                                      "",
		"--edge-host=Apps.example.com":                                                               "edge-host",
		"--edge-host=apps.example.com/x":                                                             "edge-host",
		"--edge-host=apps.example.com":                                                               "",
		"--resolvers=dns.example.com":                                                                "resolvers",
		"--resolvers=192.0.2.53:53":                                                                  "",
		"--app-processors=0":                                                                         "app-processors",
	} {
		_, err := parse(t, strings.Fields(arguments)...)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", arguments, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want an error with %q", arguments, err, want)
		}
	}
}
