// Files: content, directories, events and signed URLs.

import { until } from './harness.mjs'

async function gather(stream) {
  const parts = []
  for await (const part of stream) parts.push(part)
  return Buffer.concat(parts)
}

const streamOf = (...parts) => new Blob(parts).stream()

export async function content(t) {
  const { files, commands } = await t.create()
  const text = 'naïve café ☕\n'
  const data = Buffer.from(Array.from({ length: 70_000 }, (_, i) => (i * 7) % 256))
  const hex = (some) => Buffer.from(some).toString('hex')

  const written = await files.write('/data/deep/x.txt', text)
  t.same('write tells the path', [written.name, written.path], ['x.txt', '/data/deep/x.txt'])
  t.same('read as text', await files.read('/data/deep/x.txt'), text)
  t.same('a command sees the same file', (await commands.run('cat /data/deep/x.txt')).stdout, text)

  await files.write('/data/b', data.buffer.slice(data.byteOffset, data.byteOffset + data.length))
  const bytes = await files.read('/data/b', { format: 'bytes' })
  t.check('read as bytes', bytes instanceof Uint8Array && data.equals(bytes), `${bytes?.length} bytes differ`)
  const blob = await files.read('/data/b', { format: 'blob' })
  t.check('read as blob', data.equals(Buffer.from(await blob.arrayBuffer())), `${blob.size} bytes differ`)
  const stream = await gather(await files.read('/data/b', { format: 'stream' }))
  t.check('read as stream', data.equals(stream), `${stream.length} bytes differ`)
  const squeezed = await files.read('/data/b', { format: 'bytes', gzip: true })
  t.check('read with gzip', data.equals(squeezed), `${squeezed.length} bytes differ`)

  const several = await files.write([
    { path: '/data/several/a', data: 'A' },
    { path: '/data/several/b', data: new Blob(['B', 'b']) },
    { path: '/data/several/c', data: streamOf('C', 'c', 'c') },
  ])
  t.same('write of several tells each', several.map((f) => f.path), ['a', 'b', 'c'].map((n) => `/data/several/${n}`))
  t.same('and writes each', (await commands.run('cat /data/several/*')).stdout, 'ABbCcc')
  t.same('writeFiles does too', (await files.writeFiles([{ path: '/data/several/d', data: 'D' }])).length, 1)
  for (const [name, opts] of Object.entries({ form: {}, octets: { useOctetStream: true }, gzip: { gzip: true } })) {
    await files.write(`/data/${name}`, streamOf(data, data), opts)
    const back = await files.read(`/data/${name}`, { format: 'bytes' })
    t.same(`write of a stream, ${name}`, hex(back), hex(Buffer.concat([data, data])))
  }
  await files.write('/data/empty', '')
  t.same('an empty file', await files.read('/data/empty'), '')
  await files.write('own.txt', 'mine')
  t.same('a relative path is in the home', (await files.getInfo('own.txt')).path, '/home/user/own.txt')
  await files.write('/data/meta', 'm', { metadata: { origin: 'interop' } })
  t.same('metadata of a file', (await files.getInfo('/data/meta')).metadata, { origin: 'interop' })
}

export async function directories(t) {
  const { FileNotFoundError, InvalidArgumentError } = t.base
  const { files, commands } = await t.create()

  t.same('makeDir makes', await files.makeDir('/data/d/e/f'), true)
  t.same('makeDir of what is there', await files.makeDir('/data/d/e/f'), false)
  await files.write('/data/d/one', '12345')
  await files.write('/data/d/e/two', '2')
  await commands.run('ln -s one /data/d/link; chmod 640 /data/d/one')
  const names = async (depth) => (await files.list('/data/d', { depth })).map((e) => `${e.type} ${e.path.slice(8)}`).sort()
  t.same('list', await names(), ['dir e', 'file link', 'file one'])
  t.same('list to depth 2', await names(2), ['dir e', 'dir e/f', 'file e/two', 'file link', 'file one'])
  await t.throws('list to depth 0', () => files.list('/data/d', { depth: 0 }), InvalidArgumentError)

  const one = await files.getInfo('/data/d/one')
  t.same('info of a file', [one.name, one.path, one.type, one.size, one.mode.toString(8), one.permissions, one.owner],
    ['one', '/data/d/one', 'file', 5, '640', '-rw-r-----', 'user'])
  const age = Date.now() - one.modifiedTime
  t.check('its time is now', age > -10_000 && age < 60_000, `${age} ms ago`)
  t.same('info of a link has its target', (await files.getInfo('/data/d/link')).symlinkTarget, '/data/d/one')

  const moved = await files.rename('/data/d/one', '/data/d/e/first')
  t.same('rename tells the new path', moved.path, '/data/d/e/first')
  t.same('and leaves nothing', [await files.exists('/data/d/one'), await files.exists('/data/d/e/first')], [false, true])
  await files.remove('/data/d')
  t.same('remove takes a whole directory', await files.exists('/data/d'), false)
  for (const [what, call] of Object.entries({
    read: () => files.read('/data/none'),
    list: () => files.list('/data/none'),
    getInfo: () => files.getInfo('/data/none'),
    rename: () => files.rename('/data/none', '/data/some'),
    watchDir: () => files.watchDir('/data/none', () => {}),
  })) {
    await t.throws(`${what} of what is not there`, call, FileNotFoundError)
  }
  await t.throws('read of a directory', () => files.read('/tmp'), InvalidArgumentError)
}

export async function events(t) {
  const { files } = await t.create()
  for (const recursive of [false, true]) {
    const dir = `/data/watch-${recursive}`
    await files.makeDir(`${dir}/sub`)
    const seen = []
    const has = (type, name) => seen.some((e) => e.type === type && e.name === name)
    const handle = await files.watchDir(dir, (event) => seen.push(event), { recursive, includeEntry: true, timeoutMs: 0 })
    if (recursive) {
      await files.write(`${dir}/sub/deep`, 'x')
      await until('an event from below', () => has('create', 'sub/deep'), Boolean)
      t.check('watch sees directories below', has('create', 'sub/deep'))
    } else {
      await files.write(`${dir}/sub/unseen`, 'x')
    }
    await files.write(`${dir}/a`, 'x')
    await files.rename(`${dir}/a`, `${dir}/b`)
    await files.remove(`${dir}/b`)
    await until('the last event', () => has('remove', 'b'), Boolean)
    const how = recursive ? 'recursive' : 'plain'
    t.check(`${how} watch sees create, write, rename and remove`,
      has('create', 'a') && has('write', 'a') && has('rename', 'a') && has('remove', 'b'), seen)
    t.same(`${how} watch sees what is below`, seen.some((e) => e.name.startsWith('sub/')), recursive)
    // An event of what is gone by then has no entry.
    await files.write(`${dir}/stays`, 'x')
    await until('the event of what stays', () => has('write', 'stays'), Boolean)
    t.check(`${how} watch has entries`, seen.some((e) => e.entry?.path === `${dir}/stays`), seen)
    await handle.stop()
  }
}

export async function signedUrls(t) {
  const sandbox = await t.create()
  await sandbox.files.write('/data/signed', 'signed ☕')
  const bare = await fetch(await sandbox.downloadUrl('/data/signed'))
  t.check('a signed URL leads to its sandbox', bare.status === 200, await bare.text())

  // With E2B_SANDBOX_URL it does not, so that the headers must.
  const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' }
  const get = async (url) => {
    const answer = await fetch(url, { headers })
    return [answer.status, await answer.text()]
  }
  t.same('fetch of a signed URL', await get(await sandbox.downloadUrl('/data/signed')), [200, 'signed ☕'])
  const expiring = await sandbox.downloadUrl('/data/signed', { useSignatureExpiration: 60 })
  t.same('fetch of one that expires', await get(expiring), [200, 'signed ☕'])
  const other = new URL(expiring)
  other.searchParams.set('path', '/etc/passwd')
  t.same('a signature is of one path', (await get(other))[0], 401)
  const late = await sandbox.downloadUrl('/data/signed', { useSignatureExpiration: -60 })
  t.same('and ends', (await get(late))[0], 401)
  const unsigned = new URL(expiring)
  unsigned.search = '?path=/data/signed'
  t.same('it is needed', (await get(unsigned))[0], 401)

  const form = new FormData()
  form.append('file', new Blob(['sent']), 'sent')
  const up = await sandbox.uploadUrl('/data/sent', { useSignatureExpiration: 60 })
  t.same('post to a signed URL', (await fetch(up, { method: 'POST', body: form, headers })).status, 200)
  t.same('writes the file', await sandbox.files.read('/data/sent'), 'sent')
}
