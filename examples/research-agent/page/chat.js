// A chat over HTTP alone: entries of the log, chunks of the answer that is being made, and results of calls.
const list = document.querySelector("#messages");
const form = document.querySelector("#ask");
const messages = new Map();
let live = [];

const json = async (path, body) => {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error((await answer.json()).error.message);
  return answer.json();
};

/** The session is in the address, so that a reload comes back to it. */
async function sessionId() {
  const known = new URLSearchParams(location.search).get("session");
  if (known) return known;
  const made = await json("/v1/sessions", { agents: ["researcher"] });
  history.replaceState(null, "", `?session=${made.sessionId}`);
  return made.sessionId;
}

/** The form is there before the session is: what is asked meanwhile waits for it. */
const opened = sessionId().then((id) => `/v1/sessions/${encodeURIComponent(id)}`);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = form.elements.topic.value.trim();
  if (text === "") return;
  form.reset();
  const message = { id: crypto.randomUUID(), parts: [{ type: "text", text }] };
  void opened.then((path) => json(`${path}/messages`, message));
});
const at = await opened;
const isCall = ({ toolCallId }) => toolCallId !== undefined;

/** The first result of a call counts. */
function withResult(part, results) {
  const result = results.find(({ toolCallId }) => toolCallId === part.toolCallId);
  if (!result || part.output !== undefined) return part;
  const state = "approved" in result ? "approval-responded" : "output-available";
  return { ...part, ...result, state };
}

function take(entry) {
  if (entry.kind === "message") messages.set(entry.messageId, entry);
  const about = messages.get(entry.results?.messageId);
  if (!about) return;
  const parts = about.parts.map((part) =>
    isCall(part) ? withResult(part, entry.results.results) : part,
  );
  messages.set(about.messageId, { ...about, parts });
}

/** What a call waits for, and a button where that is a person. */
function callOf(message, part) {
  const line = document.createElement("span");
  line.className = "call";
  const name = part.type.replace("tool-", "");
  const later = part.callProviderMetadata?.flotilla?.later;
  const output = part.output ?? part.errorText;
  const waits = later ? `waits for ${later.task ?? later.signal ?? "its time"}` : part.state;
  line.textContent = `${name}: ${output === undefined ? waits : JSON.stringify(output)}`;
  if (part.state !== "approval-requested") return line;
  for (const [label, approved] of [
    ["Approve", true],
    ["Deny", false],
  ]) {
    const button = document.createElement("button");
    button.textContent = label;
    button.addEventListener("click", () => {
      const { toolCallId, approval } = part;
      const results = [{ toolCallId, approvalId: approval.id, approved }];
      // The same id however often it is clicked.
      void json(`${at}/tool-results`, { id: approval.id, messageId: message.messageId, results });
    });
    line.append(button);
  }
  return line;
}

function show() {
  const items = [...messages.values()].map((message) => {
    const item = document.createElement("li");
    item.className = message.role;
    for (const part of message.parts) {
      if (part.type === "text") item.append(part.text);
      else if (isCall(part)) item.append(callOf(message, part));
    }
    return item;
  });
  const words = live.filter(({ type }) => type === "text-delta").map(({ delta }) => delta);
  if (words.length > 0) {
    const item = document.createElement("li");
    item.append(words.join(""));
    items.push(item);
  }
  list.replaceChildren(...items);
}

const events = new EventSource(`${at}/events?lastSeq=0`);
events.addEventListener("entries", ({ data }) => {
  live = [];
  JSON.parse(data).entries.forEach(take);
  show();
});
events.addEventListener("chunks", ({ data }) => {
  const { index, chunks } = JSON.parse(data);
  live = index === 0 ? chunks : [...live, ...chunks];
  show();
});
