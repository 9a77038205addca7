/* A worker in a few kilobytes, for tests of the scripts alone: ready at once, healthy, and without
 * jobs. With -DNEVER_READY it is healthy and never reports that it is ready. */
#include <arpa/inet.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void notify(const char *text) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *name = getenv("NOTIFY_SOCKET");
    if (!name) return;
    strncpy(to.sun_path, name, sizeof to.sun_path - 1);
    if (name[0] == '@') to.sun_path[0] = 0;
    int out = socket(AF_UNIX, SOCK_DGRAM, 0);
    sendto(out, text, strlen(text), 0, (void *)&to, offsetof(struct sockaddr_un, sun_path) + strlen(name));
    close(out);
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1) return puts("worker 0.0.0") < 0;
    const char *listen_on = getenv("REPRIEVE_LISTEN");
    const char *colon = listen_on ? strrchr(listen_on, ':') : NULL;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(colon ? atoi(colon + 1) : 9090)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int door = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(door, (void *)&at, sizeof at) || listen(door, 16)) return perror("listen"), 1;
#ifndef NEVER_READY
    notify("READY=1");
#endif
    const char body[] = "{\"ApplicationHealthState\":\"Healthy\"}";
    struct pollfd wait = {.fd = door, .events = POLLIN};
    for (;;) {
        int came = poll(&wait, 1, 5000);
        notify("WATCHDOG=1");
        if (came < 1) continue;
        char asked[4096];
        int guest = accept(door, NULL, NULL);
        struct timeval patience = {.tv_sec = 1};
        setsockopt(guest, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (read(guest, asked, sizeof asked) > 0)
            dprintf(guest, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", strlen(body), body);
        close(guest);
    }
}
