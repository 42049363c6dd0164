// Runs the search of the site of the documentation as a browser does, by the worker that the site brings along.
//
// usage: node search_site.js SITE QUERY...   prints {QUERY: [[location of a section, ...] of a page, ...]} as JSON, best first
"use strict"
const fs = require("fs")
const path = require("path")
const vm = require("vm")

const [site, ...queries] = process.argv.slice(2)
const folder = path.join(site, "assets/javascripts/workers")
const worker = fs.readdirSync(folder).find((name) => /^search\..*\.js$/.test(name))

// The worker takes messages {type, data}: 0 is its setup, and 2 is a query. It answers each of them with one message.
let answered
const listeners = []
const scope = {
  addEventListener: (_, listener) => listeners.push(listener),
  postMessage: (message) => answered(message),
  location: { href: "http://localhost/" },
  importScripts: () => {},
  performance,
}
scope.self = scope
vm.runInNewContext(fs.readFileSync(path.join(folder, worker), "utf8"), scope)

function send(type, data) {
  return new Promise((resolve) => {
    answered = resolve
    listeners.forEach((listener) => listener({ data: { type, data } }))
  })
}

async function main() {
  const { config, docs } = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf8"))
  await send(0, { config, docs, options: { suggest: true } })
  const found = {}
  for (const query of queries) {
    const { data } = await send(2, query)
    found[query] = data.items.map((page) => page.map((section) => section.location))
  }
  console.log(JSON.stringify(found))
}

main()
