package http_test

import (
	"fmt"
	"maps"
)

func init() { maps.Copy(requests, appRequests) }

const appsAt = "/v1/ws/{workspaceSlug}/apps"

// appRequests has an example of each operation of apps. The app shop belongs to the owner, and no supervisor runs it.
var appRequests = map[string]func(*scene) exampleRequest{
	"GET " + appsAt: inSpace("/apps", ""),
	"POST " + appsAt: func(sc *scene) exampleRequest {
		return exampleRequest{target: sc.space("/apps"), body: fmt.Sprintf(`{"path":"writer","slug":"app%d","command":"serve","apiScopes":[]}`, sc.stage.ids.Add(1))}
	},
	"GET " + appsAt + "/{appSlug}":            inSpace("/apps/shop", ""),
	"PATCH " + appsAt + "/{appSlug}":          inSpace("/apps/shop", `{"name":"Shop"}`),
	"DELETE " + appsAt + "/{appSlug}":         onApp("", "", "has not ended yet"),
	"POST " + appsAt + "/{appSlug}/reanchor":  inSpace("/apps/shop/reanchor", `{"path":"writer"}`),
	"PUT " + appsAt + "/{appSlug}/visibility": inSpace("/apps/shop/visibility", `{"visibility":"folder"}`),
	"PUT " + appsAt + "/{appSlug}/disabled":   inSpace("/apps/shop/disabled", `{"disabled":true}`),
	"GET " + appsAt + "/{appSlug}/runtime":    inSpace("/apps/shop/runtime", ""),
	"PUT " + appsAt + "/{appSlug}/runtime":    inSpace("/apps/shop/runtime", `{"responseTimeoutSeconds":60}`),
	"POST " + appsAt + "/{appSlug}/restart":   inSpace("/apps/shop/restart", ""),
	"GET " + appsAt + "/{appSlug}/logs":       inSpace("/apps/shop/logs", ""),
	"GET " + appsAt + "/{slug}/launch":        inSpace("/apps/shop/launch", ""),
	"GET " + appsAt + "/{slug}/domain":        inSpace("/apps/shop/domain", ""),
	"PUT " + appsAt + "/{slug}/domain": func(sc *scene) exampleRequest {
		return exampleRequest{target: sc.space("/apps/shop/domain"), body: fmt.Sprintf(`{"hostname":"shop%d.example.com"}`, sc.stage.ids.Add(1))}
	},
	"DELETE " + appsAt + "/{slug}/domain":       inSpace("/apps/shop/domain", ""),
	"POST " + appsAt + "/{slug}/domain/recheck": onApp("/domain/recheck", "", "domain_not_configured"),
	"GET /v1/ws/{workspaceSlug}/app-domains":    inSpace("/app-domains", ""),
}

func onApp(suffix, body, refusal string) func(*scene) exampleRequest {
	return func(sc *scene) exampleRequest {
		return exampleRequest{target: sc.space("/apps/shop" + suffix), body: body, refusal: refusal}
	}
}
