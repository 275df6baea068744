// Package web is the operator's page: what is routing now, one site at a time, and why a job doesn't move.
//
//	browser --GET /debug/, files--> Page          nothing of a relay is in them
//	        --POST /debug/login---> token -> cookie
//	        --GET /debug/stream---> viewer        one snapshot, then what changed of what is looked at
//
// The page is read only, and mounted on the admin listener when an operator asks for it; it is never on the public one.
//
// # Who may look
//
// A token, entered once, becomes a cookie that scripts can't read and other sites' pages can't send. Every request must
// name a host of the allow-list, and what a page of a browser sends an origin that is this very host: a name rebound to
// this machine fails the first, another page on this machine the second.
package web
