package client

import "context"

// Inputs of apps with every field.
var (
	appsQuery = AppsQuery{text, text, &text, "subtree"}
	newApp    = NewApp{text, "shop", text, []string{"files:read"}, text, 3000, text, text, 60}
	port      = 3000
	sleep     = int64(60)
	install   = InstallCommand(text)
	appChange = AppChange{&text, &[]string{"files:read"}, &install, &port, &text, &text, &sleep}
)

const app = "/apps/{appSlug}"

func init() {
	operations = append(operations, []operation{
		{route: "GET " + ws + "/apps", answer: AppPage{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.AppPage(ctx, slug, appsQuery, page))
		}},
		{route: "POST " + ws + "/apps", answer: appAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.RegisterApp(ctx, slug, newApp))
		}},
		{route: "GET " + ws + app, answer: appAnswer{}, send: func(ctx context.Context, c *Client) error { return errorOf(c.App(ctx, slug, "{appSlug}")) }},
		{route: "PATCH " + ws + app, answer: appAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.UpdateApp(ctx, slug, "{appSlug}", appChange))
		}},
		{route: "DELETE " + ws + app, answer: okAnswer{}, send: func(ctx context.Context, c *Client) error { return c.UnregisterApp(ctx, slug, "{appSlug}") }},
		{route: "POST " + ws + app + "/reanchor", answer: appAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.ReanchorApp(ctx, slug, "{appSlug}", NewAnchorPath{text}))
		}},
		{route: "PUT " + ws + app + "/visibility", answer: appAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.SetAppVisibility(ctx, slug, "{appSlug}", AppVisibility{"public"}))
		}},
		{route: "PUT " + ws + app + "/disabled", answer: appAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.SetAppDisabled(ctx, slug, "{appSlug}", AppDisabling{true}))
		}},
		{route: "GET " + ws + app + "/runtime", answer: runtimeAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.AppRuntime(ctx, slug, "{appSlug}"))
		}},
		{route: "PUT " + ws + app + "/runtime", answer: runtimeAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.SetAppRuntime(ctx, slug, "{appSlug}", AppRuntime{60}))
		}},
		{route: "POST " + ws + app + "/restart", answer: appAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.RestartApp(ctx, slug, "{appSlug}"))
		}},
		{route: "GET " + ws + app + "/logs", streams: true, send: func(ctx context.Context, c *Client) error {
			for _, err := range c.StoredAppLog(ctx, slug, "{appSlug}", "c") {
				return err
			}
			return nil
		}},
		{route: "GET " + ws + "/apps/{slug}/domain", answer: domainAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.AppDomain(ctx, slug, "{slug}"))
		}},
		{route: "PUT " + ws + "/apps/{slug}/domain", answer: domainAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.AttachAppDomain(ctx, slug, "{slug}", NewDomain{text}))
		}},
		{route: "DELETE " + ws + "/apps/{slug}/domain", answer: domainAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.RemoveAppDomain(ctx, slug, "{slug}"))
		}},
		{route: "POST " + ws + "/apps/{slug}/domain/recheck", answer: domainAnswer{}, send: func(ctx context.Context, c *Client) error {
			return errorOf(c.RecheckAppDomain(ctx, slug, "{slug}"))
		}},
		{route: "GET " + ws + "/app-domains", answer: Page[WorkspaceDomain]{}, send: listing(func(c *Client) Collection[WorkspaceDomain] { return c.AppDomains(slug) })},
	}...)
}
