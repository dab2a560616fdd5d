package main

import (
	"context"
	"errors"
	"strings"

	"github.com/atelier-run/atelier/client"
)

// demoApp is the folder and the slug of the demo app, and demoPage its page.
const (
	demoApp  = "hello"
	demoPage = demoApp + "/index.html"
)

const demoHTML = `<!doctype html>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Hello</title>
<style>body { font: 1.1rem/1.6 system-ui, sans-serif; max-width: 36rem; margin: 4rem auto; padding: 0 1rem }</style>
<h1>Hello</h1>
<p>This page is <code>hello/index.html</code> on the drive of the workspace. Change it there, and reload.
`

// startDemoApp makes the demo app, unless an earlier start has done so, and returns it. It returns nil if the server refuses the app, or
// a person has deleted it. The page is written last: its history says that the app was registered, also after both were deleted.
func startDemoApp(ctx context.Context, api *client.Client) (*client.App, error) {
	history, err := api.FileHistory(quickstartSlug, demoPage, false).Page(ctx, client.Paging{Limit: 1})
	if err == nil && len(history.Items) == 0 {
		err = makeDemoApp(ctx, api)
	}
	if err != nil {
		return nil, ignoreRefusal(err)
	}
	found, err := api.App(ctx, quickstartSlug, demoApp)
	if err != nil {
		return nil, ignoreRefusal(err)
	}
	return &found, nil
}

// makeDemoApp registers the demo app and writes its page. Each step may have been done by a start that was cut off after it.
func makeDemoApp(ctx context.Context, api *client.Client) error {
	// If there is a file of this name, the registration fails.
	if err := ignoreRefusal(api.MakeFolder(ctx, quickstartSlug, demoApp)); err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	_, err := api.RegisterApp(starting, quickstartSlug, client.NewApp{Path: demoApp, Slug: demoApp, Command: siteProgram, APIScopes: []string{}, Name: "Hello"})
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil: // the computer is busy
	case client.HasCode(err, "path_in_use"), client.HasCode(err, "slug_taken"), client.HasCode(err, "reconcile_failed"):
	case err != nil:
		return err
	}
	_, err = api.WriteFile(ctx, quickstartSlug, demoPage, strings.NewReader(demoHTML))
	return err
}

// ignoreRefusal returns nil if the server has refused a request with the error, and otherwise the error.
func ignoreRefusal(err error) error {
	if refused := (*client.Error)(nil); errors.As(err, &refused) {
		return nil
	}
	return err
}

const (
	tryDemoApp = `
  # open the app "APP", the folder APP of the drive, in a browser; only members of the workspace may, who sign in
  ADDRESS/v1/ws/SLUG/apps/APP/launch

  # make it public, and read it at its address
  PROGRAM app visibility --url=ADDRESS --data=DIR SLUG APP public
  curl APPURL
` + tryApps
	tryApps = `
  # list the apps, and make a folder of your own one
  PROGRAM app list --url=ADDRESS --data=DIR SLUG
  PROGRAM app register --url=ADDRESS --data=DIR SLUG FOLDER
`
)
