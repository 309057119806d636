import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import type { InboxEvent, InboxItem, SessionService } from "../../src/sessions/service.ts";
import { type SessionFleet, startFleet, stores } from "./fleet.ts";

const quiet = agent("quiet", async function* () {
  yield "noted";
});

describe.each(stores)("inboxes on $name", (store) => {
  let fleet: SessionFleet;
  beforeAll(async () => {
    fleet = await startFleet(store, [quiet]);
  });
  afterAll(() => fleet[Symbol.asyncDispose]());

  test.each(["able", "other"] as const)(
    "count what others wrote and fall with what is read, through the pod %s",
    async (name) => {
      const service = serviceOf(fleet[name]);
      const elsewhere = serviceOf(name === "able" ? fleet.other : fleet.able);
      const user = (who: string) => `${who}-${name}`;
      const first = await service.create("default", { users: [user("ann"), user("ben")] });
      const inbox = openInbox(service, user("ann"));
      await inbox.joined.ready;
      expect(inbox.shown()).toMatchObject([{ sessionId: first.sessionId, unread: 0 }]);

      const say = (author: string, sessionId: string) =>
        elsewhere.send("default", sessionId, {
          author: user(author),
          parts: [{ type: "text", text: `from ${author}` }],
        });
      await say("ben", first.sessionId);
      await say("ann", first.sessionId);
      await say("ben", first.sessionId);
      await inbox.until((items) => items[0]?.lastSeq === 3);
      expect(inbox.shown()).toMatchObject([{ unread: 2, preview: "from ben" }]);

      await elsewhere.read("default", first.sessionId, { user: user("ann"), seq: 3 });
      await inbox.until((items) => items[0]?.readSeq === 3);
      expect(inbox.shown()).toMatchObject([{ unread: 0 }]);

      const users = [user("ann")];
      const second = await elsewhere.create("default", { users, agents: ["quiet"] });
      await say("ann", second.sessionId);
      await inbox.until((items) => items.some((item) => item.unread === 1));
      const [, answered] = inbox.shown();
      expect(answered).toMatchObject({ sessionId: second.sessionId, previewAuthor: "quiet" });

      await elsewhere.remove("default", first.sessionId);
      await inbox.until((items) => items.length === 1);

      await elsewhere.changeMembers("default", second.sessionId, { removeUsers: users });
      await inbox.until((items) => items.length === 0);
      inbox.joined.leave();
    },
  );
});

function serviceOf(pod: { sessionService: SessionService | null }): SessionService {
  return pod.sessionService!;
}

function openInbox(service: SessionService, user: string) {
  const items = new Map<string, InboxItem>();
  const see = (event: InboxEvent) => {
    if (event.type === "removed") for (const id of event.sessionIds) items.delete(id);
    else for (const item of event.sessions) items.set(item.sessionId, item);
    return true;
  };
  const failed: unknown[] = [];
  const joined = service.inbox("default", user, {
    push: see,
    fail: (error) => void failed.push(error),
  });
  const shown = () => [...items.values()];
  return {
    joined,
    shown,
    async until(holds: (items: InboxItem[]) => boolean) {
      await until(`what the inbox of ${user} should show`, () => holds(shown()));
      expect(failed).toEqual([]);
    },
  };
}
