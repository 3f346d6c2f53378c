"use strict";
// Shows what the server says and sends what its user changes, in words that are not its own.

if (location.hash.startsWith("#desk=")) {
  sessionStorage.setItem("desk", location.hash.slice(6));
  history.replaceState(null, "", location.pathname);
}
let page = null;
let queue = Promise.resolve();
let timer = 0;
let wait = 0;
let showing = false;

const at = id => document.getElementById(id);
const place = field => "at:" + JSON.stringify(field.loc);

// An element, with properties and what is inside, in any order.
function el(name, ...parts) {
  const made = document.createElement(name);
  for (const part of parts.flat()) {
    if (part instanceof Node || typeof part === "string") made.append(part);
    else Object.assign(made, part);
  }
  return made;
}

function send(path, body) {
  const token = sessionStorage.getItem("desk") || "";
  const headers = {"X-Desk": token, "Content-Type": "application/json"};
  return fetch(path, body ? {method: "POST", headers, body: JSON.stringify(body)} : {headers});
}

async function ask(path, body) {
  const answer = await send(path, body && {seen: page.seen, ...body});
  if (!answer.ok) return;
  const now = await answer.json();
  // A press ends on what it began on.
  while (document.querySelector(":is(button, label, input):active")) {
    await new Promise(done => setTimeout(done, 50));
  }
  show(now, body);
}

function queued(path, body) {
  queue = queue.then(() => ask(path, body)).catch(() => (at("ended").hidden = false));
}

const change = what => queued("change", what);
const set = (loc, value) => change({do: "set", values: [[loc, value]]});
const look = () => queued("state");

// --- parts ---

function control(field, named, notes) {
  // By ourselves, since a page that is shown anew would lose the browser's own "change".
  let sent = field.value;
  const write = ({target, type}) => {
    clearTimeout(wait);
    if (type === "change") {
      wait = setTimeout(write, 500, {target});
    } else if (!showing && target.isConnected && target.value !== sent) {
      sent = target.value;
      set(field.loc, sent);
    }
  };
  const name = {area: "textarea", select: "select"}[field.how] || "input";
  const made = el(name, field.options.map(([value, text]) => el("option", {value}, text)), {
    id: place(field),
    held: field.value,
    value: field.value,
    onblur: write,
    onchange: write,
    onkeydown: event => {
      if (name === "input" && event.key === "Enter") write(event);
    },
    ariaInvalid: field.bad ? "true" : null,
    ariaLabel: named ? field.label : null,
    autocomplete: "off",
    spellcheck: false,
    disabled: field.how === "shut",
  });
  if (notes) made.setAttribute("aria-describedby", notes.id);
  return made;
}

function notes({of}, id) {
  const hint = note => (note.hint ? ` · ${note.hint}` : "");
  const mend = note => (note.field ? control(note.field, true) : "");
  const one = note =>
    el("li", {className: note.tone}, el("b", note.tone), ` ${note.text}${hint(note)}`, mend(note));
  return of.length ? el("ul", {id, className: "notes"}, of.map(one)) : "";
}

function asked(field) {
  const id = place(field);
  const told = notes({of: field.notes}, id + ":notes");
  if (field.how !== "radio") {
    const label = el("label", {htmlFor: id}, field.label);
    return el("div", {className: "field"}, label, control(field, false, told), told);
  }
  const one = ([value, text]) => {
    const onchange = () => set(field.loc, value);
    const how = {type: "radio", name: id, id: id + value, checked: value === field.value, onchange};
    return el("label", el("input", how), text);
  };
  return el("fieldset", el("legend", field.label), told, field.options.map(one));
}

function button(tool) {
  return el("button", tool.label, {
    type: "button",
    id: "do:" + JSON.stringify([tool.do, tool.loc]),
    tabIndex: tool.tab ?? 0,
    title: tool.name || "",
    ariaLabel: tool.name,
    ariaPressed: tool.on?.toString(),
    ariaDisabled: tool.shut ? "true" : null,
    onclick: () => tool.shut || change(tool),
  });
}

function scroll(part, ...inside) {
  const told = {className: `scroll ${part.kind}`, tabIndex: 0, ariaLabel: part.caption};
  return el("section", told, inside);
}

function grid(part, where) {
  const head = part.head.map(text => (text ? el("th", {scope: "col"}, text) : el("td")));
  const rows = part.rows.flatMap((row, i) => {
    const told = notes({of: row.notes}, `${where}:${i}:notes`);
    const cell = of => (of.do ? button(of) : of.loc ? control(of, true, told) : of);
    const cells = row.cells.map(of => el("td", cell(of)));
    const below = told && el("tr", el("td", {className: "below", colSpan: head.length}, told));
    return [el("tr", el("th", {scope: "row"}, row.head), cells), below];
  });
  const inside = [el("caption", part.caption), el("thead", el("tr", head)), el("tbody", rows)];
  return scroll(part, {onpaste: paste, onkeydown: step}, el("table", inside));
}

function frame(part) {
  // by an address that answers once, since a frame sends no token
  const made = el("iframe", {title: part.label, sandbox: ""});
  send("report").then(async answer => (made.src = await answer.text()));
  return made;
}

const LOOKS = {"+": "ins", "-": "del", " ": "span"};
const svg = text => "data:image/svg+xml," + encodeURIComponent(text);
const KINDS = {
  text: part => el("p", el("code", part.code || ""), " " + part.text),
  notes,
  fields: part => el("div", part.of.map(asked)),
  picture: part => el("img", {alt: part.alt, src: svg(part.svg)}),
  button,
  frame,
  grid,
  lines: part => scroll(part, el("pre", part.of.map(line => el(LOOKS[line[0]], line + "\n")))),
  matrix: grid,
};

// Arrow keys move between the cells of a matrix, of which one at a time is reached by Tab.
function step(event) {
  const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
  const [down, right] = moves[event.key] || [];
  let to = event.target.closest(".matrix td");
  if (!to || down === undefined) return;
  event.preventDefault();
  const rows = to.closest("tbody").rows;
  do {
    to = rows[to.parentElement.sectionRowIndex + down]?.cells[to.cellIndex + right];
  } while (to?.matches(":empty"));
  to?.querySelector("button")?.focus();
}

// A block of a spreadsheet fills the cells from the one where it is pasted.
function paste(event) {
  const {id, tagName} = event.target;
  const text = event.clipboardData.getData("text");
  if (!id.startsWith("at:") || !(tagName === "TEXTAREA" ? /[;|]|^"/ : /[\t\n]/).test(text)) return;
  event.preventDefault();
  change({do: "paste", loc: JSON.parse(id.slice(3)), text});
}

// --- the page ---

function show(now, asked) {
  // What was refused stays until something else is done.
  if (!asked && page?.seen === now.seen) now.said ||= page.said;
  showing = true;
  const active = document.activeElement || document.body;
  const {id, value, selectionStart, selectionEnd, held} = active;
  document.title = `${now.name}: synthdp desk`;
  at("ended").hidden = true;
  at("name").textContent = now.name;
  at("banner").textContent = now.banner || "";
  at("said").textContent = now.said;
  const left = {ariaLabel: now.name, max: 9, value: 9 - now.counting};
  const status = now.status.map(line => el("p", line));
  at("status").replaceChildren(...status, now.counting ? el("progress", left) : "");
  at("tools").replaceChildren(...now.tools.map(button));
  now.sections.forEach((part, i) => section(part, page?.sections[i]));
  page = now;
  if (now.said) document.querySelectorAll("input, select, textarea").forEach(mark);
  const again = id && at(id);
  if (again && again !== active) {
    again.focus({preventScroll: true});
    if (held !== undefined && value !== held) again.value = value;
    if (selectionStart != null) again.setSelectionRange(selectionStart, selectionEnd);
  }
  showing = false;
  clearTimeout(timer);
  if (now.counting) timer = setTimeout(look, 700);
}

function section(part, before) {
  if (JSON.stringify(part) === JSON.stringify(before)) return;
  if (!before) {
    at("parts").append(el("a", {href: "#" + part.id}, part.title), " ");
    at("main").append(el("section", {id: part.id, ariaLabel: part.title}));
  }
  const inside = part.shut
    ? [el("p", part.shut)]
    : part.parts.map((of, i) => KINDS[of.kind](of, `${part.id}:${i}`));
  at(part.id).replaceChildren(el("h2", part.title), ...inside);
}

// What is not in the file says so.
function mark(one) {
  if (one.held === undefined || one.value === one.held) return;
  one.ariaInvalid = "true";
  one.setAttribute("aria-errormessage", "said");
}

addEventListener("focus", look);
look();
