package app_test

import (
	"testing"

	"github.com/atelier-run/atelier/entity/app"
)

func TestStandardHost(t *testing.T) {
	for host, want := range map[string]string{
		"shop--acme.apps.example.com":      "shop acme",
		"my-shop--ac-me.apps.example.com":  "my-shop ac-me",
		"apps.example.com":                 "",
		"shop.apps.example.com":            "",
		"--acme.apps.example.com":          "",
		"shop--.apps.example.com":          "",
		"x.shop--acme.apps.example.com":    "",
		"shop--acme.apps.example.com.evil": "",
		"shop--acme.example.com":           "",
		"shop--acmeapps.example.com":       "",
		"shop--acme.notapps.example.com":   "",
	} {
		appSlug, workspaceSlug, ok := app.SplitStandardHost(host, "apps.example.com")
		got := ""
		if ok {
			got = appSlug + " " + workspaceSlug
			if back := app.StandardHost(appSlug, workspaceSlug, "apps.example.com"); back != host {
				t.Errorf("the host of %s is %s", got, back)
			}
		}
		if got != want {
			t.Errorf("%s is of %q, want %q", host, got, want)
		}
	}
}
