// A JavaScript kernel: runs cells one after the other as scripts of one global scope.
//
// It reads requests from descriptor 3, one JSON object per line: {"run": n, ...}. On
// descriptor 4 it writes one JSON object per line; if it has a "size", so many bytes
// follow, which are one complete line of the HTTP response. What children write to
// descriptors 1 and 2 is read by the other program.

'use strict';
(() => {
const fs = require('fs');
const net = require('net');
const util = require('util');
const vm = require('vm');
const { Writable } = require('stream');
const { Console } = require('console');

const FILE = 'evalmachine.<anonymous>';

let parser = null; // none in a Node.js whose internals have moved: then there is no top-level await
try {
  parser = require('internal/deps/acorn/acorn/dist/acorn');
} catch {}
process.execArgv.length = 0; // not for the children of the user's code

let cell = 0; // number of the one that runs; 0: output is dropped
let count = 1;

// Writing

function write(text) {
  const data = Buffer.from(text);
  for (let at = 0; at < data.length;) {
    try {
      at += fs.writeSync(4, data, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') process.reallyExit(1); // the other program is gone
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

// In a response everything is ASCII.
const ascii = (message) => JSON.stringify(message).replace(/[\u007f-\uffff]/g,
  (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));

function say(message) {
  if (!cell) return;
  const text = ascii(message) + '\n';
  write(`{"seq": ${cell}, "size": ${text.length}}\n${text}`);
}

function output(name, fd) {
  const decoder = new (require('string_decoder').StringDecoder)();
  const stream = new Writable({
    decodeStrings: false,
    write(chunk, encoding, done) {
      const text = typeof chunk === 'string' ? chunk : decoder.write(chunk);
      if (text) say({ type: name, text, timestamp: new Date().toISOString().replace('Z', '000+00:00') });
      done();
    },
  });
  Object.defineProperty(process, name, { configurable: true, enumerable: true, value: Object.assign(stream, { fd }) });
}

// Running

// awaits tells whether a top-level part of the program awaits or imports.
function awaits(node) {
  if (Array.isArray(node)) return node.some(awaits);
  if (node === null || typeof node !== 'object' || typeof node.type !== 'string') return false;
  if (node.type === 'AwaitExpression' || node.type === 'ImportDeclaration') return true;
  if (node.type === 'ForOfStatement' && node.await) return true;
  return !/Function/.test(node.type) && Object.values(node).some(awaits);
}

// names adds the names that a pattern declares.
function names(pattern, found) {
  switch (pattern?.type) {
    case 'Identifier': found.push(pattern.name); break;
    case 'ObjectPattern': pattern.properties.forEach((p) => names(p.type === 'RestElement' ? p : p.value, found)); break;
    case 'ArrayPattern': pattern.elements.forEach((p) => names(p, found)); break;
    case 'AssignmentPattern': names(pattern.left, found); break;
    case 'RestElement': names(pattern.argument, found); break;
  }
  return found;
}

// Turns a program with top-level await or imports into a script: its declarations
// come first, so that they stay, and the rest is the body of an async function.
// Returns null if the program is a script as it stands, or is wrong anyway.
function asynchronous(code) {
  if (!parser || !/\b(await|import)\b/.test(code)) return null;
  let tree;
  try {
    tree = parser.parse(code, {
      ecmaVersion: 'latest', allowAwaitOutsideFunction: true, allowImportExportEverywhere: true, allowHashBang: true,
    });
  } catch {
    return null; // compiling it says why
  }
  if (!awaits(tree.body)) return null;
  const text = (node) => code.slice(node.start, node.end);
  const outside = { var: [], let: [] };
  let before = '';
  let body = '';
  tree.body.forEach((node, i) => {
    let part = text(node);
    if (node.type === 'ImportDeclaration') {
      const from = `await import(${node.source.raw})`;
      const parts = node.specifiers.map((s) => {
        outside.let.push(s.local.name);
        if (s.type === 'ImportNamespaceSpecifier') return `${s.local.name} = ${from};`;
        const name = s.type === 'ImportDefaultSpecifier' ? 'default' : text(s.imported);
        return `({ ${name}: ${s.local.name} } = ${from});`;
      });
      part = parts.join(' ') || from + ';';
    } else if (node.type === 'VariableDeclaration' && ['var', 'let', 'const'].includes(node.kind)) {
      const assigned = [];
      for (const d of node.declarations) {
        outside[node.kind === 'var' ? 'var' : 'let'].push(...names(d.id, []));
        if (d.init) assigned.push(`(${text(d.id)} = ${text(d.init)})`);
      }
      part = `void (${assigned.join(', ') || 0});`;
    } else if (node.type === 'ClassDeclaration') {
      outside.let.push(node.id.name);
      part = `${node.id.name} = ${part};`;
    } else if (node.type === 'FunctionDeclaration') {
      before += part + '\n';
      part = '';
    } else if (node.type === 'ExpressionStatement' && i === tree.body.length - 1) {
      part = `return [${text(node.expression)}];`;
    }
    body += part + '\n';
  });
  for (const kind in outside) {
    if (outside[kind].length) before += `${kind} ${outside[kind].join(', ')};\n`;
  }
  return `${before}(async () => {\n${body}})()`;
}

async function run(code) {
  const converted = asynchronous(code);
  const script = new vm.Script(converted ?? code, {
    filename: FILE,
    importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER ?? ((name) => import(name)),
  });
  let value = script.runInThisContext({ displayErrors: true });
  if (converted !== null) value = (await value)?.[0];
  if (value === undefined) return;
  const shown = util.inspect(value);
  say({ type: 'result', text: shown.replace(/^(['"])([^]*)\1$/, '$2'), extra: {}, is_main_result: true });
}

function report(error) {
  say({
    type: 'error',
    name: String(error?.name || typeof error),
    value: String(error?.message || util.inspect(error)),
    traceback: String(error?.stack || '').split('\n').join(''),
  });
}

// A variable is what the real service pastes between quotes into the code.
function setVariables(variables) {
  for (const [name, value] of Object.entries(variables)) {
    const literal = `'${value}'`;
    if (!/^'(?:[^'\\\n\r]|\\[^])*'$/.test(literal)) throw new SyntaxError('Invalid or unexpected token');
    process.env[name] = vm.runInThisContext(literal);
  }
}

function restoreVariables(variables) {
  for (const [name, value] of Object.entries(variables)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
}

async function execute(request) {
  cell = request.run;
  if (request.cwd) {
    try {
      process.chdir(request.cwd);
    } catch {} // as on the real server, which does not report it
    count++; // there, this is a cell of its own
  }
  say({ type: 'number_of_executions', execution_count: count });
  if (request.code.trim()) {
    count++;
    const before = {};
    for (const name in request.env) before[name] = process.env[name];
    try {
      setVariables(request.env);
      await run(request.code);
    } catch (error) {
      report(error);
    }
    restoreVariables({ ...before, ...request.after });
  }
  write(`{"seq": ${cell}, "end": true}\n`);
  cell = 0;
}

// Not the end of the kernel, also between cells.
process.on('uncaughtException', (error) => process.stderr.write((error?.stack || util.inspect(error)) + '\n'));

output('stdout', 1);
output('stderr', 2);
globalThis.console = new Console({ stdout: process.stdout, stderr: process.stderr, colorMode: false });

let last = Promise.resolve();
let line = '';
const requests = new net.Socket({ fd: 3, readable: true, writable: false });
requests.setEncoding('utf8');
requests.on('data', (data) => {
  const lines = (line + data).split('\n');
  line = lines.pop();
  for (const text of lines) last = last.then(() => execute(JSON.parse(text)));
});
requests.on('end', () => process.reallyExit(0)); // the other program is gone
write('{"ready": true}\n');
})();
