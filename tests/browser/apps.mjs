// Walks through an app in Chromium: signing in on the way to a deep path, a WebSocket, other visitors, and the end of access.
// Usage: node apps.mjs SCENE, which is JSON. There is no output on success.
import assert from 'node:assert/strict'
import { createServer, get } from 'node:http'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

const scene = JSON.parse(process.argv[2])
const password = 'curiouser and curiouser'
// patience limits every wait, in milliseconds. It is generous because the machine may be busy.
const patience = 180_000

const browser = await chromium.launch({
  executablePath: scene.chromium, timeout: patience,
  args: ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', ...(process.getuid() === 0 ? ['--no-sandbox'] : [])],
})
try {
  const alice = await member()
  await form(alice)
  await stranger()
  await frame()
  await visibility(alice)
} finally {
  await browser.close()
}

async function open() {
  const context = await browser.newContext({ viewport: { width: 1000, height: 760 }, colorScheme: 'light' })
  const page = await context.newPage()
  page.setDefaultTimeout(patience)
  return page
}

async function choosePassword(link) {
  const page = await open()
  await page.goto(link)
  await page.getByLabel('New password').fill(password)
  await page.locator('input[name=again]').fill(password)
  await page.keyboard.press('Enter')
  await page.waitForURL('**/account**')
  await page.context().close()
}

async function signIn(page, email) {
  await page.getByLabel('Email').fill(email)
  await page.getByLabel('Password').fill(password)
  await page.keyboard.press('Enter')
}

async function picture(page, name) {
  if (scene.pictures) await page.screenshot({ path: join(scene.pictures, `app-${name}.png`) })
}

// member opens a deep path of the private app, is led through signing in, and gets back to it.
async function member() {
  await choosePassword(scene.alice)
  const page = await open()
  await page.goto(scene.app + 'rooms/7?from=mail')
  assert.equal(new URL(page.url()).pathname, '/sign-in')
  await picture(page, 'sign-in')
  await signIn(page, 'alice@example.com')
  await page.waitForURL(scene.app + 'rooms/7?from=mail')
  await page.getByText('/rooms/7?from=mail').waitFor()
  await page.getByText('you said hello').waitFor()
  await picture(page, 'member')
  // The visit is a cookie that scripts do not see, of this host alone, and the app does not get it.
  const cookies = (await page.context().cookies()).filter((c) => c.domain.includes('chat--wonderland'))
  const visit = cookies.find((c) => c.name !== 'own')
  assert.ok(visit && visit.httpOnly && visit.sameSite === 'Lax' && !visit.domain.startsWith('.'), JSON.stringify(cookies))
  assert.equal(await page.evaluate(() => document.cookie), 'own=1')
  assert.equal(await page.evaluate(async () => (await fetch('/cookies')).text()), '[own=1]')
  await page.goto(scene.app + 'again')
  await page.getByText('you said hello').waitFor()
  // A path that begins with two slashes reaches the app through the launch. The app redirects to the path with one slash.
  await page.context().clearCookies({ name: visit.name })
  const slashes = scene.app + '/rooms/8?from=mail'
  const reached = page.waitForResponse((r) => r.url() === slashes && r.headers().location === '/rooms/8?from=mail')
  await page.goto(slashes)
  await reached
  await page.getByText('/rooms/8?from=mail').waitFor()
  return page
}

// form sends the form of a page with the policy no-referrer, for which the browser sends the origin "null".
async function form(page) {
  await page.goto(scene.app + 'form')
  await page.getByRole('button', { name: 'Send' }).click()
  await page.getByText('POST with the origin null').waitFor()
}

// stranger is signed in, but no member of the workspace.
async function stranger() {
  await choosePassword(scene.carol)
  const page = await open()
  await page.goto(scene.app)
  await signIn(page, 'carol@example.com')
  const answer = await page.waitForResponse((r) => r.url().includes('/launch') && r.status() !== 303)
  assert.equal(answer.status(), 404)
  await page.context().close()
  assert.equal(await statusOf('/', { Accept: 'application/json' }), 401)
}

// statusOf requests a path of the app as a program does, which finds the host without the help of a browser.
function statusOf(path, headers) {
  const server = new URL(scene.url)
  return new Promise((resolve, reject) => {
    get({ host: server.hostname, port: server.port, path, headers: { ...headers, Host: new URL(scene.app).host } }, (answer) => {
      answer.resume()
      resolve(answer.statusCode)
    }).on('error', reject)
  })
}

// frame embeds the private app in the public page of another site, whose visitor is not signed in: the frame is refused, not redirected.
async function frame() {
  const page = await open()
  const elsewhere = createServer((_, answer) => answer.setHeader('Content-Type', 'text/html').end(`<iframe src="${scene.app}"></iframe>`))
  await new Promise((listening) => elsewhere.listen(0, '127.0.0.1', listening))
  const answered = page.waitForResponse((r) => r.url() === scene.app)
  await page.goto(`http://127.0.0.1:${elsewhere.address().port}/`)
  assert.equal((await answered).status(), 401)
  await page.context().close()
  elsewhere.close()
}

// visibility makes the app public, and private again: the access of those who are no members ends, open connections included.
async function visibility(alice) {
  const set = async (value) => {
    const answer = await alice.request.put(scene.url + '/v1/ws/wonderland/apps/chat/visibility', {
      headers: { Authorization: `Bearer ${scene.key}` }, data: { visibility: value },
    })
    assert.equal(answer.status(), 200, await answer.text())
  }
  await set('public')
  const visitor = await open()
  for (let status = 0; status !== 200; ) { // other members of a cluster learn of it within a second
    status = (await visitor.goto(scene.app + 'public'))?.status()
    if (new URL(visitor.url()).pathname === '/sign-in') status = 0
  }
  await visitor.getByText('you said hello').waitFor()
  await picture(visitor, 'public')
  await set('folder')
  await visitor.getByText('closed').waitFor()
  await visitor.goto(scene.app + 'public')
  assert.equal(new URL(visitor.url()).pathname, '/sign-in')
  await alice.goto(scene.app + 'still')
  await alice.getByText('you said hello').waitFor()
  await visitor.context().close()
}
