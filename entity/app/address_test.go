package app_test

import (
	"net/url"
	"testing"

	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

func TestCanonicalAddress(t *testing.T) {
	domain := func(status appv1.DomainStatus, claimed bool) *appv1.Domain {
		return &appv1.Domain{Hostname: "shop.example.com", Status: status, Claimed: claimed}
	}
	const active, pending = appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, appv1.DomainStatus_DOMAIN_STATUS_PENDING
	for name, test := range map[string]struct {
		addresses app.Addresses
		public    string
		domain    *appv1.Domain
		want      string
	}{
		"loopback name":       {app.Addresses{}, "http://localhost:8080", nil, "http://shop--acme.localhost:8080/"},
		"IPv4 address":        {app.Addresses{}, "http://127.0.0.1:8080", nil, "http://shop--acme.localhost:8080/"},
		"IPv6 address":        {app.Addresses{}, "http://[::1]:8080", nil, "http://shop--acme.localhost:8080/"},
		"public host":         {app.Addresses{}, "https://atelier.example.org", nil, "https://shop--acme.atelier.example.org/"},
		"edge host":           {app.Addresses{EdgeHost: "apps.example.net"}, "https://atelier.example.org", nil, "https://shop--acme.apps.example.net/"},
		"port of the public":  {app.Addresses{EdgeHost: "apps.example.net"}, "https://atelier.example.org:8443", nil, "https://shop--acme.apps.example.net:8443/"},
		"standard https port": {app.Addresses{Scheme: "https", Port: 443}, "http://atelier.example.org:8080", nil, "https://shop--acme.atelier.example.org/"},
		"standard http port":  {app.Addresses{Scheme: "http", Port: 80}, "https://atelier.example.org", nil, "http://shop--acme.atelier.example.org/"},
		"other scheme":        {app.Addresses{Scheme: "https"}, "http://atelier.example.org:8080", nil, "https://shop--acme.atelier.example.org/"},
		"port alone":          {app.Addresses{Port: 9000}, "http://atelier.example.org:8080", nil, "http://shop--acme.atelier.example.org:9000/"},
		"active domain":       {app.Addresses{}, "https://atelier.example.org", domain(active, true), "https://shop.example.com/"},
		"pending domain":      {app.Addresses{}, "https://atelier.example.org", domain(pending, true), "https://shop--acme.atelier.example.org/"},
		"unclaimed domain":    {app.Addresses{}, "https://atelier.example.org", domain(active, false), "https://shop--acme.atelier.example.org/"},
	} {
		public, err := url.Parse(test.public)
		if err != nil {
			t.Fatal(err)
		}
		if got := test.addresses.WithDefaults(public).Canonical(&appv1.App{Slug: "shop", Domain: test.domain}, "acme"); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

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
