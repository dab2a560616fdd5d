package app

// MayRun reports whether the process of an app may run.
var MayRun = mayRun
