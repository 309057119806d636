import type { Database } from "../store/database.ts";
import { channelListeners } from "../store/notifications.ts";
import { migrate } from "../store/migrate.ts";
import { memoryDatabase, totalChanges } from "../store/sqlite/inline.ts";

/**
 * The store in memory, with its tables. Like a file, it notifies only after writes that changed rows:
 * otherwise pods that find nothing to claim would keep waking each other. Notifications on channels go
 * only to the listeners of those channels.
 */
export async function testStore(clock: { now(): number }): Promise<Database> {
  const database = memoryDatabase(clock);
  await migrate(database);
  const listeners = new Set<() => void>();
  const onChannels = channelListeners();
  let seen = 0;

  const notify = async (channelsOnly: boolean): Promise<void> => {
    const changes = await totalChanges(database);
    if (changes === seen) return;
    seen = changes;
    if (channelsOnly) return;
    for (const listener of listeners) listener();
  };
  return {
    recordsChanges: true,
    read: database.read,
    async write(statements, { notify: makesWork = false, channels } = {}) {
      const tables = await database.write(statements);
      await notify(channels !== undefined && !makesWork);
      if (channels !== undefined) onChannels.notify(channels);
      return tables;
    },
    subscribe(listener, channel) {
      if (channel !== undefined) return onChannels.add(channel, listener);
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    within: database.within,
    close: database.close,
  };
}
