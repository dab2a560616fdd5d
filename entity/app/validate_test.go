package app_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/entitytest"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	kindApp     = wirev1.CredentialKind_CREDENTIAL_KIND_APP
	kindSession = wirev1.CredentialKind_CREDENTIAL_KIND_SESSION
	kindOAuth   = wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH
)

func TestCheckRegistration(t *testing.T) {
	good := &appv1.Registration{
		Path: "shop", Slug: "shop", Runtime: &appv1.Runtime{Command: "npm ci &&\n\tnpm start", ApiScopes: app.Scopes},
	}
	for name, test := range map[string]struct {
		change func(*appv1.Registration)
		valid  bool
	}{
		"all scopes, no port":   {func(*appv1.Registration) {}, true},
		"no scopes":             {func(r *appv1.Registration) { r.Runtime.ApiScopes = nil }, true},
		"root":                  {func(r *appv1.Registration) { r.Path = "" }, false},
		"slug with two hyphens": {func(r *appv1.Registration) { r.Slug = "a--b" }, false},
		"reserved slug":         {func(r *appv1.Registration) { r.Slug = "admin" }, false},
		"slug docs":             {func(r *appv1.Registration) { r.Slug = "docs" }, true},
		"short slug":            {func(r *appv1.Registration) { r.Slug = "ab" }, false},
		"name of 64":            {func(r *appv1.Registration) { r.Name = strings.Repeat("é", 64) }, true},
		"name of 65":            {func(r *appv1.Registration) { r.Name = strings.Repeat("é", 65) }, false},
		"icon":                  {func(r *appv1.Registration) { r.Icon = "public/icon.svg" }, true},
		"icon above":            {func(r *appv1.Registration) { r.Icon = "../icon.svg" }, false},
		"icon at the root":      {func(r *appv1.Registration) { r.Icon = "/icon.svg" }, false},
		"icon with a scheme":    {func(r *appv1.Registration) { r.Icon = "data:image" }, false},
		"icon with a backslash": {func(r *appv1.Registration) { r.Icon = `a\b` }, false},
		"long icon":             {func(r *appv1.Registration) { r.Icon = strings.Repeat("a/", 600) + "b" }, false},
		"no runtime":            {func(r *appv1.Registration) { r.Runtime = nil }, false},
		"no command":            {func(r *appv1.Registration) { r.Runtime.Command = "" }, false},
		"blank command":         {func(r *appv1.Registration) { r.Runtime.Command = " \n" }, false},
		"long command":          {func(r *appv1.Registration) { r.Runtime.Command = strings.Repeat("x", app.MaxCommand+1) }, false},
		"command with NUL":      {func(r *appv1.Registration) { r.Runtime.Command = "a\x00" }, false},
		"command not UTF-8":     {func(r *appv1.Registration) { r.Runtime.Command = "\xff" }, false},
		"blank install command": {func(r *appv1.Registration) { r.Runtime.InstallCommand = " " }, false},
		"greatest port":         {func(r *appv1.Registration) { r.Runtime.Port = 65535 }, true},
		"greater port":          {func(r *appv1.Registration) { r.Runtime.Port = 65536 }, false},
		"admin":                 {func(r *appv1.Registration) { r.Runtime.ApiScopes = []string{entity.Admin} }, false},
		"unknown scope":         {func(r *appv1.Registration) { r.Runtime.ApiScopes = []string{"files"} }, false},
		"scope twice":           {func(r *appv1.Registration) { r.Runtime.ApiScopes = []string{"apps", "apps"} }, false},
		"a week of sleep":       {func(r *appv1.Registration) { r.Runtime.SleepAfterMs = 7 * 24 * 3600 * 1000 }, true},
		"more":                  {func(r *appv1.Registration) { r.Runtime.SleepAfterMs = 7*24*3600*1000 + 1 }, false},
		"negative":              {func(r *appv1.Registration) { r.Runtime.SleepAfterMs = -1 }, false},
		"replica":               {func(r *appv1.Registration) { r.Origin = &appv1.Origin{SourceShareId: "s", SourceAppId: "a", Mode: 1} }, true},
		"replica of nothing":    {func(r *appv1.Registration) { r.Origin = &appv1.Origin{SourceShareId: "s", Mode: 1} }, false},
		"replica without mode":  {func(r *appv1.Registration) { r.Origin = &appv1.Origin{SourceShareId: "s", SourceAppId: "a"} }, false},
	} {
		r := proto.CloneOf(good)
		test.change(r)
		err := app.CheckRegistration(r)
		if (err == nil) != test.valid || err != nil && entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUpdateIsValidated(t *testing.T) {
	w := newRunning(t)
	for _, c := range []*appv1.UpdateApp{
		{Command: proto.String("")}, {Port: proto.Uint32(0)}, {Port: proto.Uint32(70000)}, {InstallCommand: proto.String("\x01")},
		{ApiScopes: &appv1.Scopes{Scopes: []string{entity.Admin}}}, {SleepAfterMs: proto.Int64(-1)}, {Name: proto.String("\n")},
	} {
		w.refused(c, entity.InvalidRequest)
	}
}

func TestCanonicalHostname(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 49)+".", 5) + "com" // 253 characters
	for text, want := range map[string]string{
		"shop.example.com": "shop.example.com", "SHOP.Example.COM.": "shop.example.com", "example.com": "example.com", "a-b.c0.de": "a-b.c0.de",
		"shop.app.test": "shop.app.test", "r3---sn.example.com": "r3---sn.example.com", "foo.co.uk": "foo.co.uk", long: long,
		"xn--bcher-kva.example": "xn--bcher-kva.example", "me.github.io": "me.github.io", "1.2.3.example.com": "1.2.3.example.com",
		// Refused:
		"": "", ".": "", "com": "", "localhost": "", "example.com..": "", ".example.com": "", "a..b.com": "", "-a.com": "", "a-.com": "",
		"a_b.com": "", "a b.com": "", "*.example.com": "", "bücher.example": "", "a" + long: "", strings.Repeat("a", 64) + ".com": "",
		"192.168.0.1": "", "1.2": "", "0x7f.1": "", "::1": "", "[::1]": "", "example.com:443": "", "https://example.com": "",
		"co.uk": "", "github.io": "", "com.": "", "example.com/": "",
		// Not the one form of an internationalized name: no Punycode, ASCII in Punycode, a disallowed character.
		"xn--.example.com": "", "xn--a.example.com": "", "xn--abc-.example.com": "", "xn--99999999.example.com": "", "XN--BCHER-KVA.example": "xn--bcher-kva.example",
	} {
		got, err := app.CanonicalHostname(text)
		if got != want || (err == nil) != (want != "") || err != nil && entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

func FuzzCanonicalHostname(f *testing.F) {
	f.Add("Shop.Example.com.")
	f.Add("xn--bcher-kva.example")
	f.Fuzz(func(t *testing.T, text string) {
		name, err := app.CanonicalHostname(text)
		if err != nil {
			return
		}
		if again, err := app.CanonicalHostname(name); again != name || err != nil {
			t.Errorf("%q has the form %q, and that %q, %v", text, name, again, err)
		}
	})
}

func TestIdentity(t *testing.T) {
	if workspaceID, id := app.SplitIdentity(app.Identity("ws_1", appID)); workspaceID != "ws_1" || id != appID {
		t.Errorf("%q, %q", workspaceID, id)
	}
	if !app.IsID(appID) || app.IsID("app_x") || app.IsID("ses_"+appID[4:]) {
		t.Error("IsID")
	}
}
