// A person with a browser without scripts, who is signed in.
import assert from 'node:assert/strict'

// decide opens the consent page at a URL, answers its form, and returns the redirect to the application. ticked is called
// with the capabilities that the page has ticked.
export async function decide(asked, cookie, decision = 'allow', ticked = () => {}) {
  const page = await fetch(asked, { headers: { cookie }, redirect: 'manual' })
  assert.equal(page.status, 200, page.headers.get('location'))
  const html = await page.text()
  const form = new URLSearchParams({ decision })
  for (const [, name, value] of html.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)"/g)) {
    form.append(name, text(value))
  }
  for (const [, name, value] of html.matchAll(/<input type="checkbox" name="([^"]*)" value="([^"]*)" checked/g)) {
    form.append(name, text(value))
  }
  ticked(form.getAll('scope'))
  form.set('workspace', text(html.match(/<option value="([^"]*)"/)[1]))
  const action = new URL(text(html.match(/<form method="post" action="([^"]*)"/)[1]), asked)
  const answer = await fetch(action, {
    method: 'POST', body: form, redirect: 'manual', headers: { cookie, origin: asked.origin, 'sec-fetch-site': 'same-origin' },
  })
  assert.equal(answer.status, 303, await answer.text())
  return new URL(answer.headers.get('location'))
}

function text(html) {
  return html.replaceAll('&#43;', '+').replaceAll('&#34;', '"').replaceAll('&#39;', "'").replaceAll('&amp;', '&')
}
