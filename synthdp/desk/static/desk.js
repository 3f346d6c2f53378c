"use strict";
// Shows what the server says and sends what its user changes. It has no words and no state of its own.

const key = "desk";
if (location.hash.startsWith("#desk=")) {
  sessionStorage.setItem(key, location.hash.slice(6));
  history.replaceState(null, "", location.pathname);
}
let page = null, queue = Promise.resolve(), timer = 0, showing = false, pressed = false, waiting = null;

function el(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(attribute.slice(2), value);
    else if (value === true) made.setAttribute(attribute, "");
    else if (value !== false && value != null) made.setAttribute(attribute, value);
  }
  made.append(...inside.filter(part => part != null));
  return made;
}

function send(path, body) {
  const headers = {"X-Desk": sessionStorage.getItem(key) || "", "Content-Type": "application/json"};
  return fetch(path, body ? {method: "POST", headers, body: JSON.stringify(body)} : {headers});
}

async function ask(path, body) {
  const answer = await send(path, body);
  if (answer.ok) show(await answer.json());
}

function queued(path, body) {
  queue = queue.then(() => ask(path, body && {seen: page.seen, ...body})).catch(() => document.body.classList.add("ended"));
}

const change = what => queued("change", what), look = () => queued("state"), set = (...values) => change({do: "set", values});

// --- parts ---

const at = id => document.getElementById(id), place = loc => "at:" + JSON.stringify(loc);

function control(field, named) {
  // By ourselves, since a page that is shown anew while one types would lose the browser's own "change".
  let sent = field.value, wait = 0;
  const id = place(field.loc), send = ({target}) => {
    const value = field.how === "area" ? target.value : target.value.trim();
    clearTimeout(wait);
    if (!showing && target.isConnected && value !== sent) set([field.loc, sent = value]);
  };
  const told = {
    id, "data-value": field.value, onblur: send, onkeydown: event => { if (event.key === "Enter" && field.how !== "area") send(event); },
    onchange: field.how === "select" && (event => { clearTimeout(wait); wait = setTimeout(send, 500, event); }),
    "aria-invalid": field.bad && "true", "aria-label": named ? field.label : null,
    "aria-describedby": field.below || (field.notes.length ? id + ":notes" : null),
  };
  if (field.how === "select") {
    const known = field.options.some(([value]) => value === field.value);
    const options = known ? field.options : [[field.value, field.value], ...field.options];
    return el("select", told, ...options.map(([value, text]) => el("option", {value, selected: value === field.value}, text)));
  }
  if (field.how === "area") {
    const lines = field.value.split("\n"), cols = Math.min(30, Math.max(8, ...lines.map(line => line.length)));
    return el("textarea", {...told, rows: Math.min(8, lines.length), cols, spellcheck: "false"}, field.value);
  }
  const wide = Math.max(5, Math.min(18, field.value.length + 1));
  return el("input", {...told, type: "text", value: field.value, size: named ? wide : field.size || 24, autocomplete: "off",
    spellcheck: "false", disabled: field.how === "shut"});
}

function notes(of, id) {
  if (!of.length) return null;
  return el("ul", {class: "notes", id}, ...of.map(note => el("li", {class: note.tone},
    el("span", {class: "tone"}, note.tone), " ", note.text, note.hint ? el("span", {class: "hint"}, note.hint) : null,
    note.field ? control(note.field, true) : null)));
}

function choice(field) {
  const id = place(field.loc);
  return el("fieldset", {"aria-describedby": field.notes.length ? id + ":notes" : null}, el("legend", {}, field.label),
    ...field.options.map(([value, text]) => el("label", {class: "choice"},
      el("input", {type: "radio", name: id, id: id + value, value, checked: value === field.value,
        onchange: () => set([field.loc, value])}), text)), notes(field.notes, id + ":notes"));
}

const button = tool => el("button", {type: "button", id: "do:" + JSON.stringify([tool.do, tool.loc]), "aria-label": tool.name,
  "aria-disabled": tool.shut && "true", onclick: () => tool.shut || change(tool)}, tool.label);

const cell = (of, below) => el("td", {}, typeof of === "string" ? of : of.do ? button(of) : control({...of, below}, true));

const KINDS = {
  text: part => el("p", {class: "about"}, part.text),
  notes: part => notes(part.of),
  fields: part => el("div", {class: "fields"}, ...part.of.map(field => field.how === "radio" ? choice(field)
    : el("div", {class: "field"}, el("label", {for: place(field.loc)}, field.label), control(field, false),
      notes(field.notes, place(field.loc) + ":notes")))),
  grid: (part, where) => {
    const rows = part.rows.flatMap((row, i) => {
      const below = row.notes.length ? `${where}:${i}:notes` : null;
      const line = el("tr", {}, el("th", {scope: "row"}, row.head), ...row.cells.map(of => cell(of, below)));
      return below ? [line, el("tr", {}, el("td", {colspan: part.head.length, class: "below"}, notes(row.notes, below)))] : [line];
    });
    return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": part.caption, onpaste: paste},
      el("table", {}, el("caption", {}, part.caption),
        el("thead", {}, el("tr", {}, ...part.head.map(text => text ? el("th", {scope: "col"}, text) : el("td", {})))),
        el("tbody", {}, ...rows)));
  },
  matrix: part => {
    const turn = of => of ? el("td", {}, el("button", {type: "button", id: "do:" + JSON.stringify([of.do, of.loc]), tabindex: "-1",
      "aria-pressed": String(of.on), "aria-disabled": of.shut && "true", "aria-label": of.name, title: of.name,
      onclick: () => of.shut || change(of)}, of.shut ? "/" : of.on ? "x" : "")) : el("td", {class: "self"});
    const made = el("div", {class: "scroll matrix", onkeydown: step}, el("table", {}, el("caption", {}, part.caption),
      el("thead", {}, el("tr", {}, el("td"), ...part.head.map(text => el("th", {scope: "col"}, text)))),
      el("tbody", {}, ...part.rows.map(row => el("tr", {}, el("th", {scope: "row"}, row.head), ...row.cells.map(turn))))));
    made.querySelector("button")?.setAttribute("tabindex", "0");
    return made;
  },
  button,
  frame: part => { // by an address that answers once, since a frame sends no token
    const made = el("iframe", {title: part.label, sandbox: true});
    send("report").then(answer => answer.text()).then(path => { made.src = path; });
    return made;
  },
  picture: part => el("figure", {}, el("img", {alt: part.alt, src: "data:image/svg+xml," + encodeURIComponent(part.svg)})),
  command: part => el("div", {class: "command"}, el("code", {}, part.text), el("span", {class: "about"}, part.told)),
  lines: part => el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": part.caption},
    el("pre", {}, ...part.of.map(line => el("span", {class: {"+": "new", "-": "old"}[line.mark]}, `${line.mark} ${line.text}`)))),
};

// Arrow keys move between the cells of a matrix, of which one at a time is reached by Tab.
function step(event) {
  const [down, right] = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key] || [];
  const from = event.target.closest("td");
  if (!from || down === undefined) return;
  event.preventDefault();
  const rows = from.closest("tbody").rows;
  for (let i = from.parentElement.sectionRowIndex + down, j = from.cellIndex + right; rows[i]?.cells[j]; i += down, j += right) {
    const next = rows[i].cells[j].querySelector("button");
    if (!next) continue;
    from.closest("tbody").querySelectorAll("[tabindex='0']").forEach(old => { old.tabIndex = -1; });
    next.tabIndex = 0;
    return next.focus();
  }
}

// A block of a spreadsheet fills the cells from the one where it is pasted; its "1=never; 2=daily" are levels, each a line.
function paste(event) {
  const block = event.clipboardData.getData("text").replace(/\r/g, "").replace(/\n$/, "").split("\n").map(line => line.split("\t"));
  const from = event.target.closest("td"), row = from && from.parentElement, area = event.target.tagName === "TEXTAREA";
  if (!row || (area ? !/[;|]/.test(block.join("\n")) : block.length < 2 && block[0].length < 2)) return;
  event.preventDefault();
  const rows = [...row.parentElement.children].filter(line => line.querySelector("th"));
  const values = block.flatMap((line, i) => line.map((value, j) => {
    const into = rows[rows.indexOf(row) + i]?.children[from.cellIndex + j]?.querySelector("input, select, textarea");
    const levels = () => value.trim().replace(/ *[;|] */g, "\n").replace(/^([^=\n]*[^= \n]) *= *(?=[^ \n])/gm, "$1 = ");
    return into && !into.disabled ? [JSON.parse(into.id.slice(3)), into.tagName === "TEXTAREA" ? levels() : value.trim()] : null;
  })).filter(Boolean);
  if (values.length) set(...values);
}

// --- the page ---

function show(now) {
  if (pressed) return void (waiting = now);  // a press ends on what it began on
  showing = true;
  const before = page, active = document.activeElement, held = active && {
    id: active.id, value: active.value, from: active.selectionStart, to: active.selectionEnd,
    typed: active.dataset.value != null && active.value !== active.dataset.value,
  };
  page = now;
  at("name").textContent = now.name;
  document.title = `${now.name}: synthdp desk`;
  at("banner").textContent = now.banner || "";
  at("said").textContent = now.said;
  at("status").replaceChildren(...now.status.map(line => el("p", {}, line)),
    now.counting ? el("progress", {"aria-label": now.name, max: 9, value: 9 - now.counting}) : "");
  at("tools").replaceChildren(...now.tools.map(button));
  at("parts").replaceChildren(...now.sections.map(part => el("a", {href: "#" + part.id}, part.title)));
  const main = at("main");
  if (!before) main.replaceChildren(...now.sections.map(part => el("section", {id: part.id, "aria-labelledby": part.id + ":title"})));
  now.sections.forEach((part, i) => {
    if (before && JSON.stringify(part) === JSON.stringify(before.sections[i])) return;
    at(part.id).replaceChildren(el("h2", {id: part.id + ":title"}, part.title),
      ...(part.shut ? [el("p", {class: "about"}, part.shut)]
        : part.parts.map((of, j) => KINDS[of.kind](of, `${part.id}:${j}`))));
  });
  for (const one of now.said ? main.querySelectorAll("[data-value]") : []) {  // what is not in the file says so
    if (one.value !== one.dataset.value) for (const [name, is] of [["invalid", "true"], ["errormessage", "said"]]) one.setAttribute("aria-" + name, is);
  }
  const again = held && held.id && at(held.id);
  if (again && again !== active) {
    again.focus({preventScroll: true});
    if (held.typed) again.value = held.value;
    if (held.from != null) again.setSelectionRange(held.from, held.to);
  }
  showing = false;
  clearTimeout(timer);
  if (now.counting) timer = setTimeout(look, 700);
}

for (const event of ["keydown", "pointerdown"]) addEventListener(event, () => { pressed = true; }, true);
for (const event of ["keyup", "pointerup", "pointercancel", "blur"]) addEventListener(event, ({target}) => {
  if (event === "blur" && target !== window) return;
  pressed = false;
  setTimeout(() => { if (waiting && !pressed) { const now = waiting; waiting = null; show(now); } });
}, true);
addEventListener("focus", look);
look();
