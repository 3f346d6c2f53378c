"use strict";
// Shows what the server says and sends what its user changes, in words that are not its own.

const key = "desk";
if (location.hash.startsWith("#desk=")) {
  sessionStorage.setItem(key, location.hash.slice(6));
  history.replaceState(null, "", location.pathname);
}
let page = null;
let queue = Promise.resolve();
let timer = 0;
let showing = false;
let pressed = false;
let waiting = null;

const at = id => document.getElementById(id);
const place = loc => "at:" + JSON.stringify(loc);

// An element: `named` as in div.fields, then attributes and what is inside, in any order.
function el(named, ...parts) {
  const [name, look] = named.split(".");
  const made = document.createElement(name);
  if (look) made.className = look;
  for (const part of parts.flat()) {
    if (part instanceof Node || typeof part === "string") made.append(part);
    else Object.entries(part || {}).forEach(given => give(made, ...given));
  }
  return made;
}

function give(made, attribute, value) {
  if (typeof value === "function") made.addEventListener(attribute.slice(2), value);
  else if (value === true) made.setAttribute(attribute, "");
  else if (value !== false && value != null) made.setAttribute(attribute, value);
}

function send(path, body) {
  const headers = {"X-Desk": sessionStorage.getItem(key) || "", "Content-Type": "application/json"};
  return fetch(path, body ? {method: "POST", headers, body: JSON.stringify(body)} : {headers});
}

function queued(path, body) {
  queue = queue
    .then(() => send(path, body && {seen: page.seen, ...body}))
    .then(async answer => answer.ok && show(await answer.json(), body))
    .catch(() => document.body.classList.add("ended"));
}

const change = what => queued("change", what);
const set = (loc, value) => change({do: "set", values: [[loc, value]]});
const look = () => queued("state");

// --- parts ---

function control(field, named) {
  // By ourselves, since a page that is shown anew would lose the browser's own "change".
  const id = place(field.loc);
  let sent = field.value;
  let wait = 0;
  const send = ({target}) => {
    const value = field.how === "area" ? target.value : target.value.trim();
    clearTimeout(wait);
    if (!showing && target.isConnected && value !== sent) set(field.loc, (sent = value));
  };
  const told = {
    id,
    "data-value": field.value,
    onblur: send,
    "aria-invalid": field.bad && "true",
    "aria-label": named && field.label,
    "aria-describedby": field.below || (field.notes.length ? id + ":notes" : null),
  };
  if (field.how === "select") {
    const known = field.options.some(([value]) => value === field.value);
    const options = known ? field.options : [[field.value, field.value], ...field.options];
    told.onchange = event => {
      clearTimeout(wait);
      wait = setTimeout(send, 500, event);
    };
    const one = ([value, text]) => el("option", {value, selected: value === field.value}, text);
    return el("select", told, options.map(one));
  }
  if (field.how === "area") return el("textarea", told, {spellcheck: "false"}, field.value);
  told.onkeydown = event => event.key === "Enter" && send(event);
  const plain = {autocomplete: "off", spellcheck: "false", disabled: field.how === "shut"};
  return el("input", told, plain, {value: field.value});
}

function notes(of, id) {
  const one = note =>
    el(
      "li." + note.tone,
      el("b", note.tone),
      " " + note.text,
      note.hint && el("span.about", " · " + note.hint),
      note.field && control(note.field, true),
    );
  return of.length ? el("ul.notes", {id}, of.map(one)) : null;
}

function asked(field) {
  const id = place(field.loc);
  const told = notes(field.notes, id + ":notes");
  const one = ([value, text]) => {
    const onchange = () => set(field.loc, value);
    const how = {type: "radio", name: id, id: id + value, checked: value === field.value, onchange};
    return el("label", el("input", how), text);
  };
  const choices = field.options.map(one);
  return field.how === "radio"
    ? el("fieldset", {"aria-describedby": told?.id}, el("legend", field.label), choices, told)
    : el("div.field", el("label", {for: id}, field.label), control(field, false), told);
}

function button(tool) {
  const told = {
    type: "button",
    id: "do:" + JSON.stringify([tool.do, tool.loc]),
    title: tool.name,
    "aria-label": tool.name,
    "aria-pressed": tool.on?.toString(),
    "aria-disabled": tool.shut && "true",
    onclick: () => tool.shut || change(tool),
  };
  return el("button", told, tool.label);
}

function grid(part, where) {
  const head = part.head.map(text => (text ? el("th", {scope: "col"}, text) : el("td")));
  const rows = part.rows.flatMap((row, i) => {
    const told = notes(row.notes, `${where}:${i}:notes`);
    const cell = of => (of.do ? button(of) : of.loc ? control({...of, below: told?.id}, true) : of);
    const cells = row.cells.map(of => el("td", cell(of)));
    const line = el("tr", el("th", {scope: "row"}, row.head), cells);
    return told ? [line, el("tr", el("td.below", {colspan: head.length}, told))] : [line];
  });
  const table = el("table", el("caption", part.caption), el("thead", el("tr", head)));
  table.append(el("tbody", rows));
  return scroll(part, {onpaste: paste}, table);
}

const scroll = (part, ...inside) =>
  el("div.scroll", {tabindex: "0", role: "region", "aria-label": part.caption}, inside);

function matrix(part, where) {
  const made = grid(part, where);
  made.classList.add("matrix");
  made.onkeydown = step;
  made.querySelectorAll("button").forEach((one, i) => {
    one.tabIndex = i ? -1 : 0;
  });
  return made;
}

function frame(part) {
  // by an address that answers once, since a frame sends no token
  const made = el("iframe", {title: part.label, sandbox: true});
  send("report").then(async answer => {
    made.src = await answer.text();
  });
  return made;
}

function lines(part) {
  const looks = {"+": "span.new", "-": "span.old", " ": "span"};
  const one = line => el(looks[line[0]], line);
  return scroll(part, el("pre", part.of.map(one)));
}

const svg = text => "data:image/svg+xml," + encodeURIComponent(text);
const KINDS = {
  text: part => el("p.about", part.code && el("code", part.code), " " + part.text),
  notes: part => notes(part.of),
  fields: part => el("div.fields", part.of.map(asked)),
  picture: part => el("figure", el("img", {alt: part.alt, src: svg(part.svg)})),
  button,
  frame,
  grid,
  lines,
  matrix,
};

// Arrow keys move between the cells of a matrix, of which one at a time is reached by Tab.
function step(event) {
  const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
  const [down, right] = moves[event.key] || [];
  let to = event.target.closest("td");
  if (!to || down === undefined) return;
  event.preventDefault();
  const rows = to.closest("tbody").rows;
  do {
    to = rows[to.parentElement.sectionRowIndex + down]?.cells[to.cellIndex + right];
  } while (to?.matches(":empty"));
  const next = to?.querySelector("button");
  if (!next) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
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
  // What was refused stays until something else is done, and a press ends on what it began on.
  const last = waiting || page;
  if (!asked && last?.seen === now.seen) now.said ||= last.said;
  waiting = pressed ? now : null;
  if (pressed) return;
  showing = true;
  const before = page;
  const active = document.activeElement || document.body;
  const {id, value, selectionStart, selectionEnd, dataset} = active;
  const typed = dataset.value !== undefined && value !== dataset.value;
  page = now;
  document.title = `${now.name}: synthdp desk`;
  at("name").textContent = now.name;
  at("banner").textContent = now.banner || "";
  at("said").textContent = now.said;
  const left = {"aria-label": now.name, max: 9, value: 9 - now.counting};
  const status = now.status.map(line => el("p", line));
  at("status").replaceChildren(...status, now.counting ? el("progress", left) : "");
  at("tools").replaceChildren(...now.tools.map(button));
  now.sections.forEach((part, i) => section(part, before?.sections[i]));
  if (now.said) mark();
  const again = id && at(id);
  if (again && again !== active) {
    again.focus({preventScroll: true});
    if (typed) again.value = value;
    if (selectionStart != null) again.setSelectionRange(selectionStart, selectionEnd);
  }
  showing = false;
  clearTimeout(timer);
  if (now.counting) timer = setTimeout(look, 700);
}

function section(part, before) {
  if (JSON.stringify(part) === JSON.stringify(before)) return;
  const title = part.id + ":title";
  if (!before) {
    if (!page.sections.indexOf(part)) at("main").replaceChildren();
    at("parts").append(el("a", {href: "#" + part.id}, part.title), " ");
    at("main").append(el("section", {id: part.id, "aria-labelledby": title}));
  }
  const inside = part.shut
    ? [el("p.about", part.shut)]
    : part.parts.map((of, j) => KINDS[of.kind](of, `${part.id}:${j}`));
  at(part.id).replaceChildren(el("h2", {id: title}, part.title), ...inside.filter(Boolean));
}

// What is not in the file says so.
function mark() {
  for (const one of document.querySelectorAll("[data-value]")) {
    if (one.value === one.dataset.value) continue;
    one.setAttribute("aria-invalid", "true");
    one.setAttribute("aria-errormessage", "said");
  }
}

for (const event of ["keydown", "pointerdown"]) {
  addEventListener(event, () => (pressed = true), true);
}
for (const event of ["keyup", "pointerup", "pointercancel", "blur"]) {
  addEventListener(event, release, true);
}

function release({type, target}) {
  if (type === "blur" && target !== window) return;
  pressed = false;
  setTimeout(() => waiting && show(waiting, true));
}

addEventListener("focus", look);
look();
