// Create, connect, pause, time limits, lists and kill.

import { apiKey, apiUrl, pages, requests, sleep, thrown, until } from './harness.mjs'

const tickMs = 50 // the counter's own pause between two numbers
const pausedMs = 2_000

// lifecycle follows one sandbox with a process in it through a pause.
export async function lifecycle(t, metadata) {
  const { Sandbox, SandboxNotFoundError } = t.base
  // The releases run at the same time, and none but this one uses its route.
  const createRoute = { '2.45.0': '/sandboxes', newest: '/v2/sandboxes' }[t.release]

  let sandbox = await t.create({ metadata, envs: { GREETING: 'hello' } })
  const id = sandbox.sandboxId
  t.check(`create uses ${createRoute}`, requests.includes(`POST ${createRoute}`), requests)
  t.match('create gives an ID', id, /^[a-z0-9]+$/)
  t.same('a new sandbox is running', await sandbox.isRunning(), true)
  const info = await sandbox.getInfo()
  t.same('info says running', info.state, 'running')
  t.same('info has the metadata', info.metadata, metadata)
  t.same('info has the limit of two minutes', info.endAt - info.startedAt, 120_000)
  t.same('the class gives the same info', (await Sandbox.getInfo(id)).startedAt, info.startedAt)
  t.same('the variables of the sandbox', (await sandbox.commands.run('echo $GREETING')).stdout, 'hello\n')

  const text = 'naïve café ☕, line one\nline two\n'
  await sandbox.files.write('/data/x.txt', text)

  // The number is moved into place, so that no read sees half of it.
  const counter = await sandbox.commands.run(
    `i=0; while :; do i=$((i+1)); echo $i >/data/n.new; mv /data/n.new /data/n; sleep ${tickMs / 1000}; done`,
    { background: true, timeoutMs: 0 },
  )
  const count = async () => Number(await sandbox.files.read('/data/n'))
  await until('counting', count, (n) => n >= 3)
  // Its stream would break at the pause; the process stays.
  await counter.disconnect()

  const before = await count()
  let awake = Date.now() // start of the first stretch in which it may count
  t.same('pause reports that it paused', await sandbox.pause(), true)
  awake = Date.now() - awake
  t.same('a second pause reports that it was paused', await sandbox.pause(), false)
  const again = await fetch(`${apiUrl}/sandboxes/${id}/pause`, { method: 'POST', headers: { 'X-API-Key': apiKey } })
  const answer = await again.json()
  t.same('a second pause is a 409', again.status, 409)
  t.check('the 409 says already paused', answer.code === 409 && /already paused/.test(answer.message), answer)
  t.same('a paused sandbox is not running', await sandbox.isRunning(), false)
  t.same('info says paused', (await Sandbox.getInfo(id)).state, 'paused')

  await sleep(pausedMs)

  const resumed = Date.now()
  sandbox = await Sandbox.connect(id, { timeoutMs: 120_000 })
  const after = await count()
  awake += Date.now() - resumed
  const connectRoute = `${createRoute}/${id}/connect`
  t.check(`connect uses ${createRoute}/{id}/connect`, requests.includes(`POST ${connectRoute}`), requests)
  t.same('connect gives the same sandbox', sandbox.sandboxId, id)
  t.same('the file is there after the pause', await sandbox.files.read('/data/x.txt'), text)
  // One tick may straddle each end of the two stretches awake.
  const most = before + Math.ceil(awake / tickMs) + 2
  t.check(
    `the count stood still for ${pausedMs} ms`,
    before <= after && after <= most,
    `${before} before, ${after} after, at most ${most} in ${awake} ms awake`,
  )
  const listed = await sandbox.commands.list()
  t.check('the process is there after the pause', listed.some((p) => p.pid === counter.pid), listed)
  t.check('the process counts on', (await until('counting again', count, (n) => n > after)) > after)

  t.same('betaPause pauses too', await sandbox.betaPause(), true)
  const rebooted = await Sandbox.connect(id, { timeoutMs: 120_000, onResume: 'reboot' })
  t.same('the file is there after a reboot', await rebooted.files.read('/data/x.txt'), text)
  t.same('connect with a reboot ends the processes', await rebooted.commands.list(), [])

  t.same('kill reports that it killed', await sandbox.kill(), true)
  t.same('a second kill reports that it was gone', await Sandbox.kill(id), false)
  t.same('a killed sandbox is not running', await sandbox.isRunning(), false)
  t.same('a killed sandbox is in no list', await pages(Sandbox.list({ query: { metadata } })), [])
  await t.throws('connect to a killed sandbox is not found', () => Sandbox.connect(id), SandboxNotFoundError)
  await t.throws('info of a killed sandbox is not found', () => Sandbox.getInfo(id), SandboxNotFoundError)
}

export async function timeouts(t, metadata) {
  const { Sandbox } = t.base
  const sandbox = await t.create({ metadata })
  const before = Date.now()
  await sandbox.setTimeout(300_000)
  const left = (await sandbox.getInfo()).endAt - before
  t.check('setTimeout counts from now', left > 295_000 && left < 315_000, `${left} ms are left, want about 300,000`)
  await sandbox.setTimeout(1_000)
  const gone = async () => (await thrown(() => Sandbox.getInfo(sandbox.sandboxId))).error
  t.check('a sandbox is killed when its time is over', (await until('the end', gone, Boolean)) instanceof t.base.NotFoundError)

  const pausing = await t.create({ metadata, timeoutMs: 1_000, lifecycle: { onTimeout: 'pause', autoResume: false } })
  const waking = await t.create({ metadata, timeoutMs: 1_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
  t.same('info has what happens at the timeout', (await pausing.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
  for (const one of [pausing, waking]) {
    await until('the pause', () => one.getInfo(), (info) => info.state === 'paused')
  }
  t.same('a sandbox pauses itself when its time is over', (await pausing.getInfo()).state, 'paused')
  const asleep = await thrown(() => pausing.commands.run('true'))
  t.check('a paused sandbox runs no command', asleep.error, 'it ran one')
  // Info says paused while the first pause goes on, which no traffic can undo.
  const up = await until('waking', () => waking.commands.run('echo up'), Boolean)
  t.same('a command wakes one with autoResume', up.stdout, 'up\n')
  t.same('then it is running', (await waking.getInfo()).state, 'running')
  await pausing.connect({ timeoutMs: 60_000 })
  t.same('connect wakes the other', (await pausing.commands.run('echo up')).stdout, 'up\n')
}

export async function lists(t, metadata) {
  const { Sandbox } = t.base
  const ids = []
  for (let i = 0; i < 3; i++) ids.push((await t.create({ metadata: { ...metadata, n: String(i) } })).sandboxId)
  await Sandbox.pause(ids[1])
  const list = async (query, opts) => (await pages(Sandbox.list({ query, ...opts }))).map((s) => s.sandboxId)
  const sorted = async (...args) => (await list(...args)).sort()

  t.same('the list by metadata has all three', await sorted({ metadata }), [...ids].sort())
  t.same('two metadata must both fit', await list({ metadata: { ...metadata, n: '2' } }), [ids[2]])
  t.same('the list by other metadata is empty', await list({ metadata: { interop: 'of nobody' } }), [])
  t.same('the list of paused ones', await list({ metadata, state: ['paused'] }), [ids[1]])
  t.same('the list of running ones', await sorted({ metadata, state: ['running'] }), [ids[0], ids[2]].sort())
  t.same('the list of both states', await sorted({ metadata, state: ['running', 'paused'] }), [...ids].sort())

  const paginator = Sandbox.list({ query: { metadata }, limit: 2 })
  const first = await paginator.nextItems()
  t.same('a page has as many as asked for', first.length, 2)
  t.check('there is a next page', paginator.hasNext && paginator.nextToken)
  const rest = await list({ metadata }, { limit: 2, nextToken: paginator.nextToken })
  t.same('a token leads to the next page', [...first.map((s) => s.sandboxId), ...rest].sort(), [...ids].sort())
  t.same('the paginator goes there too', (await paginator.nextItems()).map((s) => s.sandboxId), rest)
  t.same('and is at its end', [paginator.hasNext, paginator.nextToken], [false, undefined])
}
