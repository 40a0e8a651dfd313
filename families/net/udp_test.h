/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of logic_test.c about UDP, whose datagrams sockets hold. Included there: it uses the model of keys. */
/* Add a UDP datagram to the amounts counted, or to the amounts refused. */
static void udp_counted(const struct net_datagram *d, u64 *of)
{
	of[NET_PPS] += d->packets;
	of[NET_BPS] += d->bytes;
	of[NET_BYTES] += d->bytes;
}

/* The number of the peer in a place. */
static u32 udp_peer_of(const struct net_peer *p)
{
	return p->host[1] >> 56;
}

/* Push a datagram by itself. 0: there is no level for it. */
static int udp_alone(struct net_udp *u, const struct net_datagram *d)
{
	struct net_batches *all = net_claim(host_on(batches, host_user_cpu));

	if (!all)
		return 0;
	all->datagram = *d;
	return net_udp_alone(u, all);
}

/* Count a datagram, as the hooks in datagrams.bpf.h do. */
static void udp_datagram(u32 socket, struct net_datagram *d, u32 at)
{
	struct udp_model *m = &udp_model[socket];
	struct net_udp *u = &m->udp;
	int is_counted;

	if (!ts_read(u->side))
		net_udp_begin(u, d->part == NET_RX ? NET_SERVER : NET_CLIENT, 7 + socket, 4, m->is_kernels);
	if (net_udp_hold(u)) {
		u->now = *d;
		if (!u->listed && host_make(active, sk, m))
			u->listed = 1;
		is_counted = net_udp_count(u);
	} else {
		is_counted = udp_alone(u, d);
		if (!is_counted)
			net_refuse_datagram(d);
	}
	udp_counted(d, totals);
	if (is_counted)
		udp_bytes[at] += d->bytes;
	else
		udp_counted(d, refused);
}

static void udp_speak(u32 socket)
{
	u32 peer = test_random(test_once_in(2) ? 2 : PEERS), port = test_random(PORTS);
	struct net_datagram d = { .part = test_random(2), .packets = 1 + test_random(3), .bytes = test_random(2000) };

	udp_peer(&d, peer, port);
	host_user_no_memory = test_once_in(8);
	udp_datagram(socket, &d, udp_at(socket, udp_model[socket].user, peer, port));
	host_user_no_memory = 0;
}

/* Settle a socket. Whether everything was pushed. */
static int udp_settle(u32 socket)
{
	struct udp_model *m = &udp_model[socket];
	u32 left;

	if (!host_of(active, sk, m))
		return 1;
	left = net_udp_settle(&m->udp);
	if (left == NET_SILENT_NOW) {
		host_user_free(active, m);
		net_udp_let_go(&m->udp);
	}
	return left != NET_LEFT;
}

static void udp_end(u32 socket)
{
	net_udp_end(&udp_model[socket].udp);
	udp_model[socket].closed = 1;
}

/* The socket's user changes. */
static void udp_pass_on(u32 socket)
{
	struct udp_model *m = &udp_model[socket];

	if (!net_udp_hold(&m->udp))
		return;
	TEST_WANT(net_udp_leave_user(&m->udp), "there is a level");
	m->user = 1 - m->user;
	udp_own(&m->udp.flow, socket, m->user);
	net_udp_let_go(&m->udp);
}

/* The socket with which another CPU, or an interrupt of this one, does something after `meanwhile_in` steps; -1: none. */
static int meanwhile = -1;
static u32 meanwhile_in, meanwhile_cpu;

static void test_step(void)
{
	u32 socket = meanwhile, cpu = host_user_cpu;

	if (meanwhile < 0 || --meanwhile_in)
		return;
	meanwhile = -1;
	host_user_cpu = meanwhile_cpu;
	switch (test_random(4)) {
	case 0:
		udp_settle(socket);
		break;
	case 1:
		udp_end(socket);
		break;
	default:
		udp_speak(socket);
	}
	host_user_cpu = cpu;
}

/* NET_LEVELS looks are under way on this CPU, and all of them are stopped. */
static void udp_crowd(u32 socket)
{
	struct udp_model *m = &udp_model[socket];
	struct net_batches *levels[NET_LEVELS];
	u32 i, ends = test_once_in(4);

	for (i = 0; i < NET_LEVELS; i++)
		TEST_WANT((levels[i] = net_claim(host_on(batches, host_user_cpu))), "there is a level");
	udp_speak(socket);
	for (i = 0; ends && i < NET_PEERS; i++) {
		const struct net_peer *p = &m->udp.peer[i];
		u64 bytes = p->used.rx + p->used.tx;

		refused[NET_PPS] += p->used.in + p->used.out;
		refused[NET_BPS] += bytes;
		refused[NET_BYTES] += bytes;
		udp_bytes[udp_at(socket, m->user, udp_peer_of(p), p->port ? p->port - 80 : 0)] -= bytes;
	}
	if (ends)
		udp_end(socket);
	else
		TEST_WANT(udp_settle(socket) || m->udp.claim == 0, "who can't push does not keep the claim");
	for (i = 0; i < NET_LEVELS; i++)
		ts_release(&levels[i]->claim);
}

/*
 * Make all objects, for either side, before the run: a CPU that interrupts the making of an object is rightly refused, and the
 * model could not predict the amount.
 */
static void udp_make_objects(u32 socket)
{
	struct net_udp *u = &udp_model[socket].udp;
	u32 i;

	u->local = 7 + socket;
	u->netns = 4;
	for (i = 0; i < 2 * USERS * PEERS * PORTS; i++) {
		struct net_datagram d = { .part = NET_RX, .packets = 1 };

		u->side = 1 + i % 2;
		udp_own(&u->flow, socket, i / 2 % USERS);
		udp_peer(&d, i / 2 / USERS % PEERS, i / 2 / USERS / PEERS);
		TEST_WANT(udp_alone(u, &d), "there is a level");
		udp_counted(&d, totals);
	}
	memset(u, 0, sizeof(*u));
	udp_own(&u->flow, socket, 0);
}

/* NU4: a datagram in a later cell pushes the amounts of an earlier one. */
static void cells_are_apart(void)
{
	struct net_datagram d = { .part = NET_TX, .packets = 1, .bytes = 100, .port = 4711, .host = { 0, 0x98ULL << 56 } };
	u32 i, turn, left = 0;
	struct net_udp u;

	memset(&u, 0, sizeof(u));
	u.listed = 1;
	u.flow.process = 6000;
	net_udp_begin(&u, NET_CLIENT, 4711, 9, 0);
	for (turn = 0; turn < 3; turn++) {
		test_time_passes(turn * NET_LOOK_MS * 1000000);
		TEST_WANT(net_udp_hold(&u), "nobody has it");
		u.now = d;
		TEST_WANT(net_udp_count(&u), "there is a level");
		udp_counted(&d, totals);
	}
	for (i = 0; i < NET_PEERS; i++)
		left += u.peer[i].used.out;
	TEST_WANT(left == 1, "%u are left of the last cell", left);
	net_udp_end(&u);
	compare_totals();
}

/* The lock under which the flow's object of a sample is made. */
static u64 *bucket_lock(const struct net_flow *f, u32 sample)
{
	struct keyed_bucket *b;
	struct net_key key;

	net_key_of(&key, f, sample);
	b = host_item(buckets, keyed_first(keyed_hash(&key, sample)));
	TEST_WANT(b, "a bucket");
	return &b->lock;
}

/* The CPU that makes objects is stopped: amounts of two other objects, in turns, wait for their places. */
static void wait_for_places(void)
{
	struct net_udp u[2];
	u32 i, sample;

	memset(u, 0, sizeof(u));
	for (i = 0; i < 2; i++) {
		net_udp_begin(&u[i], NET_SERVER, 4711 + i, 9, 0);
		u[i].flow.process = 5000 + i;
		u[i].flow.owner.pid = 50 + i;
		u[i].flow.owner.cgroup = 500 + i;
	}
	for (i = 0; i < 8; i++) {
		struct net_datagram d = { .part = NET_RX, .packets = 1, .bytes = 100 };
		struct net_udp *now = &u[i / 2 % 2];
		struct net_flow f = now->flow;

		d.host[1] = 0x99ULL << 56 | (i / 2 % 2);
		net_flow_to(&f, now, d.host, d.port);
		for (sample = 0; sample < NET_SAMPLES && i < 4; sample++)
			TEST_WANT(ts_claim(bucket_lock(&f, sample)), "nobody has it");
		TEST_WANT(udp_alone(now, &d), "there is a level");
		udp_counted(&d, totals);
		for (sample = 0; sample < NET_SAMPLES && i < 4; sample++)
			ts_release(bucket_lock(&f, sample));
	}
	compare_totals();
	for (i = 0; i < 2; i++) {
		struct net_flow f = u[i].flow;
		u64 host[2] = { 0, 0x99ULL << 56 | i };

		net_flow_to(&f, &u[i], host, 0);
		for (sample = 0; sample < NET_SAMPLES; sample++) {
			struct net_key key;
			u32 place;

			net_key_of(&key, &f, sample);
			place = keyed_find(&key, sample);
			TEST_WANT(place && objects[place - 1].bytes.sum[NET_RX] == 400, "sample %u has all", sample);
			TEST_WANT(sample == NET_HOSTS || objects[place - 1].owner.pid == 50 + i, "whose it is");
		}
	}
}

static void udp_compare(void)
{
	struct net_flow f;
	u32 i;

	for (i = 0; i < SOCKETS; i++)
		TEST_WANT(udp_settle(i), "nobody has the claim");
	compare_totals();
	for (i = 0; i < 20; i++) {
		udp_flow(&f, test_random(EACH));
		compare_objects(&f);
	}
	for (i = 0; i < SOCKETS; i++)
		TEST_WANT(!udp_model[i].udp.claim || udp_model[i].udp.claim == NET_OVER, "nobody has it");
}

static __attribute__((noinline)) void run_udp(u32 steps, u32 ms)
{
	u32 i;

	for (i = 0; i < SOCKETS; i++) {
		udp_model[i].is_kernels = test_once_in(8);
		udp_make_objects(i);
	}
	flush();
	for (i = 0; i < steps; i++) {
		u32 socket = test_random(SOCKETS);
		struct udp_model *m = &udp_model[socket];

		host_user_cpu = test_random(HOST_USER_CPUS);
		test_time_passes(test_random(2) * test_random(ms * 1000000));
		if (!m->closed && test_once_in(4)) {
			meanwhile = socket;
			meanwhile_in = 1 + test_random(1 << test_random(10));
			meanwhile_cpu = test_once_in(2) ? host_user_cpu : test_random(HOST_USER_CPUS);
		}
		if (test_once_in(30))
			udp_end(socket);
		else if (meanwhile < 0 && test_once_in(20))
			udp_pass_on(socket);
		else if (meanwhile < 0 && test_once_in(20))
			udp_crowd(socket);
		else
			udp_speak(socket);
		meanwhile = -1;
		if (test_once_in(60))
			udp_compare();
	}
	/* A closed socket has pushed everything, and no reader looks at it again. */
	for (i = 0; i < SOCKETS; i++) {
		if (!udp_model[i].closed)
			udp_end(i);
		host_user_free(active, &udp_model[i]);
	}
	udp_compare();
}
