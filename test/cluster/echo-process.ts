/** One end of a connection: a server that sends everything back, or a client that sends what it is given. */
import { connect, createServer, type Socket } from "node:net";
import process from "node:process";
import { createInterface } from "node:readline";

const [, , role, host, port] = process.argv;
const heard = (text: string) => void process.stdout.write(`${text.trim()}\n`);

if (role === "server") {
  const server = createServer((socket: Socket) => {
    socket.setNoDelay(true);
    socket.setEncoding("utf8").on("data", (text: string) => {
      heard(text);
      socket.write(text);
    });
    socket.on("error", () => {});
  });
  server.listen(Number(port), host, () => heard("ready"));
} else {
  const socket = connect(Number(port), host);
  socket.setNoDelay(true);
  socket.setEncoding("utf8").on("data", heard);
  socket.on("connect", () => heard("ready"));
  createInterface(process.stdin).on("line", (line) => void socket.write(`${line}\n`));
}
