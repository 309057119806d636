import { seededRandom } from "../../base/random.ts";
import type { Database } from "../database.ts";
import { renderAll, type Statement } from "../sql.ts";
import { postgresDialect } from "../postgres/dialect.ts";
import { openPostgres } from "../postgres/postgres.ts";

/** One transaction in so many is undone by the server, by a seed. */
const undoneOneIn = 20;

const unknownThere =
  /\b(ctid|skip locked|returning|pg_notify|listen|pg_advisory\w*|unlogged|fillfactor|synchronous_commit)\b/i;

export const reducedDialect = postgresDialect({ schema: "flotilla", unproven: true });

export type ReducedDatabase = Database & {
  /** Resolves when nothing is under way: a write that is made again may outlive the test that sent it. */
  settled(): Promise<void>;
};

/**
 * A stand-in for databases that resemble Postgres and have less: it refuses what they wouldn't understand,
 * is serializable, and undoes transactions of reads and of writes.
 */
export async function openReduced(url: string, seed = 1): Promise<ReducedDatabase> {
  const random = seededRandom(seed);
  const undoes = () => random.uint32() % undoneOneIn === 0;
  const database = await openPostgres({ url, unproven: true, undoes });
  const understood = (statements: readonly Statement[]) => {
    for (const { text } of renderAll(statements, reducedDialect).queries) {
      const unknown = unknownThere.exec(text);
      if (unknown) throw new Error(`a reduced database doesn't know \`${unknown[0]}\`: ${text}`);
    }
  };
  const underWay = new Set<Promise<unknown>>();
  const watched = <Answer>(answer: Promise<Answer>): Promise<Answer> => {
    const settled = answer.catch(() => {}).finally(() => underWay.delete(settled));
    underWay.add(settled);
    return answer;
  };
  return {
    ...database,
    async read(statement, options) {
      understood([statement]);
      return watched(database.read(statement, options));
    },
    async write(statements, options) {
      understood(statements);
      return watched(database.write(statements, options));
    },
    async settled() {
      while (underWay.size > 0) await Promise.all(underWay);
    },
  };
}
