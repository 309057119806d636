import { userInfo } from "node:os";
import process from "node:process";
import type { Command } from "commander";
import { Option } from "commander";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { systemRandom } from "../../base/random.ts";
import type { SessionView } from "../../sessions/service.ts";
import {
  chatThroughServer,
  type ChatService,
  startTerminalChat,
  type TerminalChat,
} from "../chat/chat.ts";
import { type ChatTerminal, openTerminal } from "../chat/terminal.ts";
import { createTranscript, firstSeq, type Transcript } from "../chat/transcript.ts";
import { onStore } from "../connect.ts";
import { type TargetFlags, withJson, withTarget } from "../flags.ts";
import { oneLine } from "../output.ts";

type Flags = TargetFlags & {
  agent?: string;
  user?: string;
  tenant?: string;
  json?: true;
};

export function chatCommand(program: Command): void {
  const chat = program
    .command("chat [session]")
    .description("chat with an agent in the terminal, in a new or an existing session")
    .option("--agent <name>", "the agent of a new session")
    .addOption(
      new Option("--user <user>", "the author of messages (default: your login name)").env(
        "FLOTILLA_USER",
      ),
    )
    .option("--tenant <tenant>", "the tenant of the session")
    .addHelpText(
      "after",
      `
Ctrl-C stops the answer, twice in a row leaves. The session stays; its id is printed at the end.

Examples:
  $ flotilla chat --agent helper
  $ flotilla chat 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e
  $ flotilla chat --agent helper --url https://flotilla.example
  $ echo 'What is the weather?' | flotilla chat --agent helper`,
    );
  withJson(withTarget(chat)).action(run);
}

async function run(sessionId: string | undefined, flags: Flags): Promise<void> {
  if ((sessionId === undefined) === (flags.agent === undefined)) {
    throw new FlotillaError(
      "invalid_option",
      "name an existing session, or an agent for a new one: --agent helper",
    );
  }
  const { url, user, tenant } = flags;
  if (url === undefined) {
    return onStore(flags, ({ sessionService }) => chat(sessionService, sessionId, flags));
  }
  const { openRemote, serverKey } = await import("../remote.ts");
  // A token determines its user, so name none where there is one.
  const name = user ?? (serverKey() === undefined ? ownName() : undefined);
  const { client } = openRemote(url, { user: name, tenant });
  try {
    await chat(chatThroughServer(client), sessionId, flags);
  } finally {
    client.close();
  }
}

async function chat(
  service: ChatService,
  sessionId: string | undefined,
  { agent, user = ownName(), tenant = "default", json }: Flags,
): Promise<void> {
  const session =
    sessionId === undefined
      ? await service.create(tenant, { agents: [agent!], users: [user] })
      : await service.get(tenant, sessionId);
  const terminal = openTerminal();
  const isLive = process.stdout.isTTY === true && process.stdin.isTTY === true;
  const form = json ? "json" : isLive ? "live" : "lines";
  const transcript = createTranscript({ output: terminal.output, form });
  transcript.beginAfter(firstSeq(session));
  const conversation = startTerminalChat({
    service,
    session: { ...session, tenant },
    user,
    transcript,
    clock: systemClock,
    random: systemRandom,
    ids: uuidv7(systemClock, systemRandom),
    onIdle: terminal.prompt,
  });
  const onKey = interrupts(conversation, transcript);
  terminal.onInterrupt(onKey.pressed);
  process.once("SIGTERM", () => conversation.leave());
  try {
    const typing = isLive
      ? type(conversation, terminal, transcript, onKey.reset)
      : sendEach(conversation, terminal, session);
    await Promise.race([conversation.ended, typing]);
  } finally {
    conversation.leave();
    terminal.close();
  }
  if (isLive) transcript.notice(`session ${oneLine(session.sessionId, 200)}`);
}

/** Ctrl-C once stops the answer, twice in a row leaves. */
function interrupts(conversation: TerminalChat, transcript: Transcript) {
  let pressed = false;
  return {
    reset: () => {
      pressed = false;
    },
    pressed: () => {
      if (pressed) return conversation.leave();
      pressed = true;
      conversation.stop().then(
        (stopped) =>
          transcript.notice(stopped ? "(stopping; Ctrl-C again leaves)" : "(Ctrl-C again leaves)"),
        (error: unknown) => transcript.notice(`(stopping failed: ${errorText(error)})`),
      );
    },
  };
}

/** Sends each typed line at once; the agent's policy decides about messages during a turn. */
async function type(
  conversation: TerminalChat,
  terminal: ChatTerminal,
  transcript: Transcript,
  onSent: () => void,
): Promise<void> {
  terminal.prompt();
  for await (const line of terminal.lines) {
    if (line.trim() === "") {
      terminal.prompt();
      continue;
    }
    onSent();
    conversation.send(line).catch((error: unknown) => {
      const what = hasCode(error, "unknown_outcome") ? "it may be stored" : "not stored";
      transcript.notice(`(${what}: ${errorText(error)})`);
    });
  }
}

/** Sends each line of a pipe, and waits for its answer before the next. */
async function sendEach(
  conversation: TerminalChat,
  { lines }: ChatTerminal,
  { agents }: SessionView,
): Promise<void> {
  for await (const line of lines) {
    if (line.trim() === "") continue;
    let seq = Infinity;
    const answers: number[] = [];
    const seen = conversation.waitForEntry((entry) => {
      const isIt = agents.length === 0 || entry.role === "assistant";
      if (isIt) answers.push(entry.seq);
      if (isIt && entry.outcome === "failed") process.exitCode = 1;
      return isIt && entry.seq >= seq;
    });
    seq = await conversation.send(line);
    // The answer may have arrived before the message's seq was known.
    if (!answers.some((each) => each >= seq) && (await seen) === undefined) return;
  }
}

function ownName(): string {
  try {
    return userInfo().username;
  } catch {
    return "user";
  }
}

function errorText(error: unknown): string {
  return oneLine(messageOf(error), 200);
}
