package api

import (
	"time"

	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// runtimeRequest is the body of a request to replace the settings of an app's runtime. A setting that is omitted or null gets its default.
type runtimeRequest struct {
	ResponseTimeoutSeconds server.Nullable[int64] `json:"responseTimeoutSeconds"`

	settings *appv1.RuntimeSettings
}

// runtimeAnswer is the response of operations on the settings of an app's runtime. A setting with its default is omitted.
type runtimeAnswer struct {
	Runtime struct {
		ResponseTimeoutSeconds int64 `json:"responseTimeoutSeconds,omitzero"`
	} `json:"runtime"`
}

var errResponseTimeout = server.Invalid("responseTimeoutSeconds must be %d to %d", app.MinResponseTimeout/time.Second, app.MaxResponseTimeout/time.Second)

func checkRuntimeSettings(in *runtimeRequest) error {
	in.settings = &appv1.RuntimeSettings{}
	if seconds := in.ResponseTimeoutSeconds.Value; seconds != nil {
		if *seconds < int64(app.MinResponseTimeout/time.Second) || *seconds > int64(app.MaxResponseTimeout/time.Second) {
			return errResponseTimeout
		}
		in.settings.ResponseTimeoutMs = *seconds * 1000
	}
	return nil
}

func answerRuntime(found *appv1.Description, err error) (answer runtimeAnswer, _ error) {
	answer.Runtime.ResponseTimeoutSeconds = found.GetApp().GetRuntimeSettings().GetResponseTimeoutMs() / 1000
	return answer, err
}

// readRuntime returns the settings of the runtime of the app in the path. Errors: not_found.
func (a apps) readRuntime(c *server.Call, _ server.None) (runtimeAnswer, error) {
	return answerRuntime(a.request(c).Describe(c.Context, pathSlug(c)))
}

// setRuntime replaces all settings of the runtime of the app in the path. Errors: not_found, forbidden, invalid_request.
func (a apps) setRuntime(c *server.Call, in runtimeRequest) (runtimeAnswer, error) {
	return answerRuntime(a.set(c, &appv1.SetRuntimeSettings{Settings: in.settings}))
}
